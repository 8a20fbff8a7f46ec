"""The pages of the tasks are right: the code runs in eager mode, and they list all options, attributes and errors."""

from __future__ import annotations

import importlib
import re
from typing import Any

import django
import pytest

from resty_django.qless import AsyncResult, GroupResult, TaskContext
from resty_django.qless.tasks import eager, schedule
from resty_django.qless.tasks import results as states
from resty_django.qless.tasks.options import EnqueueKeywords, EnqueueOptions, TaskKeywords, TaskOptions
from tests.docs_reader import execute, page

PAGE = "docs/reference/jobs/tasks.md"


def words(column: str, *others: str, name: str = PAGE) -> set[str]:
    """Return the words that are marked as code in the first column of a table."""
    return set(re.findall(r"[`(]?(\w+)[`(]", " ".join(row[0] for row in page(name).table(column, *others))))


@pytest.mark.django_db
def test_the_code_of_the_page_runs(settings: Any, django_capture_on_commit_callbacks: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"EAGER": True, "MODULES": ["docs"]}}
    before = dict(schedule.scheduled)
    namespace: dict[str, Any] = {"__name__": "docs"}
    count = 0
    try:
        for block in page(PAGE).blocks:
            if block.language == "python":
                with django_capture_on_commit_callbacks(execute=True):
                    count += execute(block.text, block.place, namespace)
    finally:
        schedule.scheduled.clear()
        schedule.scheduled.update(before)
        eager.outcomes.clear()
    assert count >= 12
    assert namespace["RESTY_DJANGO"] == {"QLESS": {"EAGER": True}}


def test_the_page_lists_all_options() -> None:
    members: Any = importlib.import_module("members")
    for options, keywords in ((TaskOptions, TaskKeywords), (EnqueueOptions, EnqueueKeywords)):
        path = f"{options.__module__}.{options.__name__}"
        assert f":::{{fields}} {path}\n" in page(PAGE).text
        rows = dict(re.findall(r"^\| (`.*`) \| (.*) \| \S.* \|$", members.fields(path, {}), re.MULTILINE))
        assert sorted(re.findall(r"\w+", " ".join(rows))) == sorted(keywords.__annotations__)
        assert rows.get("`queue`", "`'default'`") == "`'default'`"
        assert rows.get("`retry_on`", "`Exception`") == "`Exception`"


def test_the_page_lists_all_options_of_the_backend() -> None:
    if django.VERSION < (6, 0):
        pytest.importorskip("django_tasks")
    from resty_django.qless.integrations.django_tasks import QlessBackend
    from resty_django.qless.integrations.django_tasks.task import OPTION_NAMES

    name = "docs/reference/jobs/django-tasks.md"
    assert words("option", "default", "meaning", name=name) == QlessBackend.option_names
    assert words("option of a task", "on Django 6.0", name=name) == {*OPTION_NAMES}


@pytest.mark.parametrize("kind", [AsyncResult, GroupResult, TaskContext])
def test_the_page_lists_all_attributes(kind: type) -> None:
    names = {name for name in dir(kind) if name[0] != "_"} - {"client"}
    names -= {name for name in names if name.startswith("get_")}
    documented = set(re.findall(r"\w+", " ".join(page(PAGE).spans)))
    assert names - documented - page(PAGE).members == set()


def test_the_page_lists_all_states() -> None:
    names = {name for name, constant in vars(states).items() if constant == name}
    assert len(names) == 7
    assert words("state", "the job") == names
