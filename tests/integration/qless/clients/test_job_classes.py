"""From the name of a job's class to the function that runs it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import Any

import pytest

import resty_django
from resty_django.qless import Client, Job, MethodMissing, MethodType, NotAllowed
from resty_django.qless.job_classes import Runnable, allowed, find, function_of
from tests.integration.qless.conftest import Invoke, change_settings

from . import sample_jobs

pytestmark = pytest.mark.contract

HERE = sample_jobs.__name__


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"MODULES": [HERE]}}


TASKS = """
import os
from os import system
from resty_django.qless import Job, task
from resty_django.qless.tasks import message
from resty_django.qless.tasks.message import use_dispatcher
from resty_django.qless.testing import Recorder

@task
def add(a, b): return a + b

def helper(job): return 'ran'

class Task:
    @staticmethod
    def perform(job): return 'done'

    @staticmethod
    def helper(job): return 'ran'
"""


def job_of(klass: str, queue: str = "q", data: Any = 4) -> Job:
    return Job.build(Client("redis://127.0.0.1:1"), klass, queue=queue, data=data)


def test_a_runnable_may_set_what_workers_use() -> None:
    class Own(Runnable):
        def __init__(self) -> None:
            self.perform = lambda job: job.data
            self.middleware = [str]
            self.result_ttl = 5.0

    own = Own()
    assert function_of(own, "q")(job_of("K")) == 4
    assert (own.middleware, own.result_ttl) == ([str], 5.0)


@pytest.mark.parametrize(
    ("name", "queue", "result"),
    [
        ("double", "q", 8),
        ("adouble", "q", 8),
        ("decorated", "q", ["wrapped", 4]),
        ("ByQueue", "q", "ByQueue perform"),
        ("ByQueue", "slow", "slow"),
        ("ByQueue", "fast", "ByQueue perform"),
        ("ByQueue", "__init__", "ByQueue perform"),
        ("Processing", "q", "process"),
        ("Processing.Inner", "q", "inner"),
        ("ByQueue.slow", "q", "slow"),
    ],
)
def test_functions_that_run_jobs(name: str, queue: str, result: Any) -> None:
    assert job_of(f"{HERE}.{name}", queue).perform() == result


async def test_functions_that_run_jobs_in_asyncio() -> None:
    for name in ("double", "adouble"):
        assert await job_of(f"{HERE}.{name}").aperform() == 8


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("NotStatic", MethodType, "NotStatic.perform is not static"),
        ("Nothing", MethodMissing, "no static method q or perform or process"),
        ("LIMIT", NotAllowed, "is a int"),
        ("partial", NotAllowed, "is a partial"),
        ("run", NotAllowed, "is imported there from subprocess"),
        ("Job", NotAllowed, r"is imported there from resty_django\.qless\.clients\.job"),
        ("os.system", NotAllowed, "outside the modules from which"),
        ("os.path.join", NotAllowed, "outside the modules from which"),
        ("functools.partial", NotAllowed, "outside the modules from which"),
        ("LIMIT.bit_length", NotAllowed, "leads through a int"),
        ("double.__globals__", NotAllowed, "outside the modules from which"),
        ("Nothing.__init__", NotAllowed, "outside the modules from which"),
        ("_hidden", NotAllowed, "outside the modules from which"),
        ("missing", ImportError, "has no missing"),
        ("Nothing.missing", ImportError, "Nothing has no missing"),
        ("", NotAllowed, "outside the modules from which"),
    ],
)
async def test_names_that_are_not_jobs_are_refused(name: str, kind: type[Exception], message: str) -> None:
    job = job_of(f"{HERE}.{name}")
    with pytest.raises(kind, match=message):
        job.perform()
    with pytest.raises(kind, match=message):
        await job.aperform()


@pytest.mark.parametrize("klass", ["os.system", "Mail::Send", "", "jobs.x", "tests", HERE, "resty_django.qless.Client"])
def test_names_of_other_modules_are_refused(klass: str) -> None:
    with pytest.raises(NotAllowed, match=r'\["QLESS"\]\["MODULES"\]'):
        find(klass)


def test_nothing_is_imported_for_a_name_that_is_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_imported.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotAllowed):
        find("never_imported.Job")
    assert "never_imported" not in sys.modules


def test_apps_and_packages_offer_the_jobs_of_their_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    app = tmp_path / "own_app"
    (app / "jobs").mkdir(parents=True)
    (app / "__init__.py").touch()
    (app / "jobs" / "__init__.py").write_text("from .mail import send\n")
    (app / "jobs" / "mail.py").write_text("def send(job): return 'sent'\n")
    (app / "tasks.py").write_text(TASKS)
    (app / "views.py").write_text("raise AssertionError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotAllowed):
        find("own_app.tasks.Task")
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "own_app"]
    assert {"own_app.jobs", "own_app.tasks", HERE} <= set(allowed())
    assert job_of("own_app.tasks.Task").perform() == "done"
    assert job_of("own_app.tasks.add", data={"args": [1, 2], "kwargs": {}}).perform() == 3
    for klass in ("own_app.jobs.send", "own_app.jobs.mail.send", "own_app.tasks.helper", "own_app.tasks.Task.helper"):
        with pytest.raises(NotAllowed, match="plain function"):
            find(klass)
    for name in ("system", "Job", "Recorder", "use_dispatcher", "message.use_dispatcher", "add.function", "os.system"):
        with pytest.raises(NotAllowed):
            find(f"own_app.tasks.{name}")
    change_settings(settings, MODULES=["own_app.jobs.mail"])
    assert job_of("own_app.jobs.send").perform() == "sent"
    assert job_of("own_app.jobs.mail.send").perform() == "sent"
    with pytest.raises(NotAllowed, match="plain function"):
        find("own_app.tasks.helper")
    with pytest.raises(ModuleNotFoundError):
        find("own_app.jobs.nothing.send")
    with pytest.raises(NotAllowed):
        find("own_app.views.index")
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "own_app"]
    with pytest.raises(NotAllowed):
        find("own_app.tasks.Task")


def test_nothing_of_this_package_is_a_job() -> None:
    """A program that can write to Redis may put a job of any name."""
    names = {"resty_django.qless.tasks.message.use_dispatcher", "resty_django.limits.jobs.JobLimit"}
    for info in pkgutil.walk_packages(resty_django.__path__, "resty_django.", onerror=lambda name: None):
        try:
            module = importlib.import_module(info.name)
        except Exception:  # integrations whose package or settings are missing here
            assert not info.name.startswith(("resty_django.qless.tasks", "resty_django.limits.jobs")), info.name
            continue
        for name, member in vars(module).items():
            if inspect.isroutine(member) or isinstance(member, type):
                names.add(f"{info.name}.{name}")
            if isinstance(member, type):
                names |= {f"{info.name}.{name}.{method}" for method in vars(member)}
    assert len(names) > 5000
    assert {"resty_django.qless.tasks", "resty_django.limits.jobs"}.isdisjoint(allowed())
    for name in names:
        with pytest.raises(NotAllowed):
            find.__wrapped__(name)


def test_a_class_is_put_under_the_name_by_which_it_is_found() -> None:
    from resty_django.qless.clients.put_options import class_name

    for klass in (sample_jobs.double, sample_jobs.ByQueue, sample_jobs.Processing.Inner):
        assert find(class_name(klass)) is klass


@pytest.mark.redis
async def test_a_function_is_put_found_and_run(client: Client, invoke: Invoke) -> None:
    await invoke(client.queues["q"].put, sample_jobs.double, 21)
    job = await invoke(client.queues["q"].pop)
    await invoke(job.complete, result=function_of(find(job.klass), "q")(job))
    assert (await invoke(job.result)).result == 42
