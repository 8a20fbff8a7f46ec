"""Names of tasks that survive a move of their function: `name=` and `aliases=`."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from resty_django.qless import DuplicateTask, NotAllowed, client, task
from resty_django.qless.clients.job import Job
from resty_django.qless.clients.recurring import RecurringJob
from resty_django.qless.tasks.registry import discover, find
from resty_django.qless.tasks.schedule import AHEAD, declare, scheduled
from resty_django.qless.worker.exit_codes import CONFIG
from resty_django.qless.worker.options import options
from resty_django.qless.worker.supervisor import Supervisor
from tests.integration.qless.worker.conftest import InProcessWorker

pytestmark = [pytest.mark.redis, pytest.mark.slow]

HEAD = "from resty_django.qless import task\n\n\n"
ADD = "def add(a, b):\n    return a + b\n"
OLD, NEW = "named_shop_old", "named_shop_new"
MODULES = (OLD, NEW)
LONG = 60.0

Deploy = Callable[..., ModuleType]


@pytest.fixture
def deploy(site: Any, valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Replace the modules of a site by others, as a process that starts with new code does."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [name for name, old in scheduled.items() if old.path.startswith(MODULES)]:
            del scheduled[name]
        for module in MODULES:
            sys.modules.pop(module, None)
            (tmp_path / f"{module}.py").unlink(missing_ok=True)
        importlib.invalidate_caches()
        gc.collect()  # a new process does not know the old tasks

    def deploy(**codes: str) -> None:
        forget()
        for module, code in codes.items():
            (tmp_path / f"{module}.py").write_text(HEAD + code)
        section = {"URL": valkey_url, "MODULES": list(codes)}
        site.RESTY_DJANGO = {**site.RESTY_DJANGO, "QLESS": section}

    yield deploy
    forget()


def enqueue(module: str, *args: Any) -> Any:
    return importlib.import_module(module).add.delay(*args)


def test_job_carries_the_name_for_clients_of_any_language(deploy: Deploy, valkey: Any) -> None:
    deploy(**{OLD: f'@task(name="shop.add", queue="q")\n{ADD}'})
    result = enqueue(OLD, 1, 2)
    assert valkey.hget(f"ql:j:{result.id}", "klass") == b"shop.add"
    assert importlib.import_module(OLD).add.name == "shop.add"


@pytest.mark.parametrize(
    ("before", "module", "after"),
    [
        ('name="shop.add"', NEW, 'name="shop.add"'),
        ("", NEW, f'aliases=["{OLD}.add"]'),
        ("", OLD, 'name="shop.add"'),
    ],
    ids=["moved", "moved with an alias", "named"],
)
def test_waiting_job_runs_after_its_task_was_moved_or_named(
    deploy: Deploy, start_worker: Callable[..., InProcessWorker], before: str, module: str, after: str
) -> None:
    deploy(**{OLD: f'@task({before + ", " if before else ""}queue="q")\n{ADD}'})
    waiting = enqueue(OLD, 1, 2)
    deploy(**{module: f'@task({after}, queue="q")\n{ADD}'})
    start_worker()
    assert waiting.get(LONG) == 3
    assert enqueue(module, 3, 4).get(LONG) == 7


def test_unique_task_stays_one_job_when_its_function_moves(deploy: Deploy) -> None:
    deploy(**{OLD: f'@task(name="shop.add", unique=True)\n{ADD}'})
    first = enqueue(OLD, 1, 2)
    deploy(**{NEW: f'@task(name="shop.add", unique=True)\n{ADD}'})
    assert enqueue(NEW, 1, 2) == first


def test_name_reaches_no_module_that_may_not_have_tasks(deploy: Deploy, site: Any, valkey_url: str) -> None:
    deploy(**{OLD: f'@task(name="shop.add")\n{ADD}'})
    importlib.import_module(OLD)
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "QLESS": {"URL": valkey_url}}
    with pytest.raises(NotAllowed, match=rf"'{OLD}\.add' is outside the modules from which jobs may come"):
        find("shop.add")


def test_unknown_name_is_refused_after_all_modules_were_imported(deploy: Deploy) -> None:
    deploy(**{OLD: f'@task(name="shop.add")\n{ADD}'})
    with pytest.raises(NotAllowed, match=r"'shop\.remove' is outside the modules from which jobs may come"):
        find("shop.remove")
    assert OLD in sys.modules


def test_module_that_cannot_be_imported_hides_no_other_task(deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    deploy(**{OLD: "1 / 0\n", NEW: f'@task(name="shop.add")\n{ADD}'})
    assert find("shop.add").perform is not None  # type: ignore[union-attr]
    assert f"{OLD} cannot be imported" in caplog.text


@pytest.mark.parametrize(
    "option", ['name="shop.add"', f'name="{OLD}.add"', f'aliases=["{OLD}.add"]', 'aliases=["a", "shop.add"]']
)
def test_two_tasks_with_one_name_are_rejected(deploy: Deploy, option: str) -> None:
    deploy(**{OLD: f'@task(name="shop.add")\n{ADD}', NEW: f"@task({option})\n{ADD}"})
    with pytest.raises(DuplicateTask, match=rf"Two tasks have the name '.*': {OLD}\.add and {NEW}\.add\. Change "):
        discover()


def test_worker_does_not_start_with_two_tasks_of_one_name(deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    code = f'@task(name="shop.add")\n{ADD}'
    deploy(**{OLD: code, NEW: code})
    assert Supervisor(options(queues=("q",), processes=2)).run() == CONFIG


def test_module_that_is_imported_again_replaces_its_tasks(deploy: Deploy) -> None:
    deploy(**{OLD: f'@task(name="shop.add")\n{ADD}'})
    module = importlib.import_module(OLD)
    first = module.add
    assert importlib.reload(module).add is not first
    assert find("shop.add") is module.add


@pytest.mark.parametrize("name", ["", "two words", "celery:add", "a" * 201, "1st", "näme\n"])
def test_name_that_jobs_cannot_have_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be a task's name\. Use up to 200 letters"):
        task(name=name)(declare)
    with pytest.raises(ValueError, match="aliases= contains"):
        task(aliases=[name])(declare)


def test_names_of_another_type_are_rejected() -> None:
    with pytest.raises(TypeError, match="name= takes text, not 7"):
        task(name=7)(declare)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"aliases= is a list of names, not the text 'shop\.add'"):
        task(aliases="shop.add")(declare)


# --- periodic tasks ----------------------------------------------------------------------------------------------


def tick(option: str) -> str:
    return f"@task({option})\ndef tick():\n    pass\n"


def test_recurring_job_follows_its_task_to_a_new_name(deploy: Deploy) -> None:
    deploy(**{OLD: tick("every=60")})
    discover()
    declare(client)
    assert isinstance(client.jobs.get(f"every-{OLD}.tick"), RecurringJob)
    deploy(**{OLD: tick('every=60, name="shop.tick"')})
    discover()
    declare(client)
    assert client.jobs.get(f"every-{OLD}.tick") is None
    job = client.jobs.get("every-shop.tick")
    assert isinstance(job, RecurringJob)
    assert job.klass == "shop.tick"


def test_recurring_job_of_a_person_is_left_alone(deploy: Deploy) -> None:
    client.queues["q"].recur("shop.jobs.Tick", {}, 60, jid="every-shop.tick")
    deploy(**{OLD: tick('every=60, aliases=["shop.tick"]')})
    discover()
    declare(client)
    assert isinstance(client.jobs.get("every-shop.tick"), RecurringJob)


def test_cron_jobs_follow_their_task_to_a_new_name(deploy: Deploy) -> None:
    deploy(**{OLD: tick('cron="*/5 * * * *"')})
    discover()
    declare(client)
    deploy(**{NEW: tick(f'cron="*/5 * * * *", aliases=["{OLD}.tick"]')})
    discover()
    declare(client)
    waiting = [client.jobs.get(jid) for jid in client.queues["default"].jobs.scheduled()]
    assert [job.klass for job in waiting if isinstance(job, Job)] == [f"{NEW}.tick"] * AHEAD
