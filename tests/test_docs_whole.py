"""The documentation is complete: it lists all settings, errors, commands and modules, and no others."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
from django.apps import apps
from django.core.management import BaseCommand, get_commands, load_command_class
from django.db.models import Model

import resty_django
from resty_django.cache.models import Cache
from resty_django.conf import SECTIONS
from resty_django.conf.schema import page_of
from resty_django.ids import errors
from resty_django.ids.models import IdCounter, IdRule
from resty_django.limits.models import KeyBan, LimitOverride, LimitPolicy, QuotaUsage
from resty_django.models import Overview, SharedDictionary
from resty_django.qless.models import Job
from tests.docs_reader import ROOT, Block, Page, blocks, code, page, pages

EVERYTHING = "\n".join(doc_page.text for doc_page in pages())
PAGES = pytest.mark.parametrize("doc_page", pages(), ids=lambda doc_page: doc_page.name)
MODELS: Mapping[type[Model], str] = {
    IdRule: "docs/reference/ids/admin.md",
    IdCounter: "docs/reference/ids/admin.md",
    SharedDictionary: "docs/reference/shared/shdict.md",
    KeyBan: "docs/reference/limits/admin.md",
    LimitOverride: "docs/reference/limits/admin.md",
    LimitPolicy: "docs/reference/limits/admin.md",
    QuotaUsage: "docs/reference/limits/admin.md",
    Overview: "docs/reference/overview.md",
    Cache: "docs/reference/cache/cache.md",
    Job: "docs/reference/jobs/admin.md",
}
"""The page that documents the permissions of each app."""
sys.path.append(str(ROOT / "docs" / "_ext"))
reference = importlib.import_module("reference")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def directives(name: str, doc_page: str) -> list[str]:
    """Return the arguments of a directive on a page."""
    return re.findall(rf"^:::\{{{name}\}} (.+)$", page(doc_page).text, re.MULTILINE)


# --- the pages document everything in the code -------------------------------------------------------------------


def test_settings_are_documented_with_their_defaults() -> None:
    shown = "\n".join(reference.settings(path, {}) for path in directives("settings", "docs/reference/settings.md"))
    shown += "".join(
        f"{{#{name}}}" for name in re.findall(r'<a id="([^"]+)">', page("docs/reference/settings.md").text)
    )
    for entry in SECTIONS.values():
        for path in entry.paths():
            assert f"{{#{page_of(path).partition('#')[2]}}}" in shown, path
    assert "[`STEP`]{#ids-step} | int | `1` | Number of independent sites" in shown
    assert "[`KEEP`]{#qless-outbox-keep} | duration | `604800` | Time for which rows stay" in shown


def test_each_part_has_its_errors_on_the_page() -> None:
    shown = {package: reference.errors(package, {}) for package in directives("errors", "docs/reference/errors.md")}
    assert "| `Exhausted` | `exhausted` | -2 | 409 | " in shown["resty_django.ids.errors"]
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.IdError)]
    statuses: dict[str, str] = {}
    for status, codes in page("docs/reference/ids/api.md").table("status", "codes"):
        for word in re.findall(r"`(\w+)`", codes):
            statuses[word] = f"{statuses.get(word, '')} {status}"
    for kind in kinds:
        assert f"| `{kind.__name__}` | `{kind.code}` |" in shown["resty_django.ids.errors"]
        assert str(kind.http_status) in statuses[kind.code], kind.code


def test_causes_of_dropped_datagrams_are_documented() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "resty_django/ids/udp").glob("*.py"))
    pattern = r'(?:Ignored|_note)\("(\w+)"|return "(network|rate)"|"(too_long)" if datagram else "(empty)"'
    causes = {name for match in re.findall(pattern, source) for name in match if name}
    assert len(causes) >= 9
    assert causes - set(page("docs/reference/ids/protocol.md").spans) == set()


def test_system_checks_are_documented_with_what_to_do() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "resty_django").rglob("*.py"))
    ids = set(re.findall(r'"(resty_\w+\.[EWI]\d{3})"', source))
    rows = re.findall(r"^\| `(resty_\w+\.[EWI]\d{3})` \| \S.*\. \| \S.*\. \|$", reference.checks({}), re.MULTILINE)
    assert sorted(rows) == sorted(ids)


def commands_of_the_wheel() -> list[tuple[str, BaseCommand]]:
    return [
        (name, load_command_class(app, name))
        for name, app in get_commands().items()
        if isinstance(app, str) and app.startswith("resty_django")
    ]


def options_of(command: BaseCommand, name: str) -> set[str]:
    parser = command.create_parser("manage.py", name)
    return {option for action in parser._actions for option in action.option_strings}


def options_of_subcommands(command: BaseCommand, name: str) -> set[str]:
    actions = command.create_parser("manage.py", name)._actions
    parsers = [parser for action in actions if isinstance(action.choices, dict) for parser in action.choices.values()]
    return {option for parser in parsers for action in parser._actions for option in action.option_strings}


def test_commands_are_documented_with_their_options() -> None:
    listed = directives("command", "docs/reference/commands.md")
    assert sorted(listed) == sorted(name for name, _ in commands_of_the_wheel())
    common = options_of(BaseCommand(), "any")
    for name, command in commands_of_the_wheel():
        shown = reference.command(name, {})
        for option in (options_of(command, name) | options_of_subcommands(command, name)) - common:
            assert re.search(rf"`{option}[` ]", shown), f"{name} {option}"
        assert not re.search(r"\| +\|$", shown, re.MULTILINE), f"an option of {name} has no help"


def test_addresses_of_the_api_are_documented() -> None:
    from resty_django.ids.api.urls import urlpatterns

    assert "ids" in directives("http", "docs/reference/http.md")
    shown = reference.http("ids", {})
    for pattern in urlpatterns:
        route = str(pattern.pattern).replace("<resty_ids_name:name>", "{name}")
        assert f" /{route}`" in shown or route.startswith("^"), route


def test_extras_are_documented_with_their_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = {
        extra: {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}  # type: ignore[index]
        for extra, requirements in project["optional-dependencies"].items()
        if extra != "all"
    }
    rows = page("docs/install.md").table("extra", "adds", "packages", "needs a compiler")
    listed = {code(extra): set(filter(None, names.strip().split(", "))) for extra, _, names, _ in rows}
    assert listed.pop("all") == set()
    assert listed == packages


def test_metrics_are_documented() -> None:
    package = ROOT / "resty_django"
    files = [*package.rglob("overview.py"), package / "metrics/sources.py"]
    names = {name for path in files for name in re.findall(r'"(resty_[a-z]+_[a-z_]+|resty_jobs)"', path.read_text())}
    names = {name for name in names if not name.endswith("_changelist")}
    documented = {
        name.removesuffix("_total") for name in re.findall(r"`(resty_[a-z_]+)`", page("docs/reference/metrics.md").text)
    }
    assert len(names) > 20
    assert names - documented == set()


def test_permissions_are_documented() -> None:
    for model, name in MODELS.items():
        text = page(name).text
        for codename, _ in model._meta.permissions:
            assert f"`{model._meta.app_label}.{codename}`" in text, codename


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_paths_on_pages_for_contributors_exist(name: str) -> None:
    paths = [span for span in page(name).spans if re.fullmatch(r"[a-z_]+/[a-z_/]*\w*(/|\.py|\.lua|\.md)", span)]
    assert len(paths) > 15
    places = [ROOT / "resty_django", ROOT]
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


def test_commands_for_contributors_exist() -> None:
    described = {row[0] for row in page("CONTRIBUTING.md").table("command", "runs")}
    names = set(re.findall(r"`make ([a-z-]+)", " ".join(described)))
    assert names <= TARGETS
    assert TARGETS - names <= {"help", "usable-venv", "venv", "demo", "format", "ci", "clean"}


def test_the_architecture_is_short() -> None:
    assert len(page("docs/explanation/architecture.md").text.split()) <= 2000


def test_guarantees_cover_every_fault_of_every_part() -> None:
    text = page("docs/explanation/guarantees.md").text
    faults = [row[0] for row in page("docs/explanation/guarantees.md").table("fault", "meaning")]
    overview = page("docs/explanation/guarantees.md").table("part", *faults)
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    described = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"): re.findall(
            r"^\| ([a-z, ]+) \|.*\|.*\|.+\|$", body, re.MULTILINE
        )
        for title, _, body in (section.partition("\n") for section in sections)
    }
    assert len(overview) == 14
    for part, *cells in overview:
        assert all(cells), part
        anchor_of_part = part.partition("(#")[2].rstrip(")")
        head, *rows = described[anchor_of_part]
        assert head == "fault"
        assert sorted(fault for row in rows for fault in row.split(", ")) == sorted(faults), part


def test_the_table_of_weaknesses_is_whole_and_its_tests_exist() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    existing = set(re.findall(r"def (test_\w+)", tests))
    rows = page("docs/explanation/ids-guarantees.md").table("#", "id_server", "this package", "tests")
    assert [int(row[0]) for row in rows] == list(range(1, 25))
    for number, _, _, evidence in rows:
        assert re.findall(r"`(test_\w+)`", evidence), f"row {number} names no test"
    named = {span for doc_page in pages() for span in doc_page.spans if re.fullmatch(r"test_\w+", span)}
    assert named - existing == set()


# --- what the pages name, the code has ---------------------------------------------------------------------------


@PAGES
def test_names_in_the_text_exist(doc_page: Page) -> None:
    permissions = {
        f"{model._meta.app_label}.{name}"
        for model in MODELS
        for name in [
            *(f"{verb}_{model._meta.model_name}" for verb in model._meta.default_permissions),
            *(codename for codename, _ in model._meta.permissions),
        ]
    }
    for span in doc_page.spans:
        if span in permissions:
            continue
        if re.fullmatch(r"resty_(ids|limits|cache|qless)\.[a-z_]+", span):
            assert span in permissions, f"{doc_page.name}: there is no permission {span}"
        elif re.fullmatch(r"resty_django(\.\w+)+", span) and not re.fullmatch(r"resty_django\.[EW]\d{3}", span):
            pkgutil.resolve_name(span)
        elif re.fullmatch(r"(resty_django|ids|limits|tests|project|bench)/[\w/.]*", span):
            base = ROOT / "resty_django" if span.startswith(("ids/", "limits/")) else ROOT
            assert (base / span).exists(), f"{doc_page.name}: there is no {span}"


def test_commands_and_targets_in_the_text_exist() -> None:
    existing = set(get_commands())
    assert set(re.findall(r"manage\.py ([a-z_]+)", EVERYTHING)) - existing == set()
    named = {
        target for doc_page in pages() for span in doc_page.spans for target in re.findall(r"^make ([a-z-]+)", span)
    }
    assert named
    assert named - TARGETS == set()


SHELL = list(blocks("console", "sh", "bash"))


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.place)
def test_shell_blocks_name_commands_options_and_targets_that_exist(block: Block) -> None:
    assert block.language == "console", "write console, with a $ before each command"
    assert block.commands, "no line begins with $"
    for command in block.commands:
        arguments = shlex.split(command)
        if "manage.py" in arguments:
            name, *options = arguments[arguments.index("manage.py") + 1 :]
            app = get_commands()[name]
            command_class = app if isinstance(app, BaseCommand) else load_command_class(app, name)
            existing = options_of(command_class, name) | options_of_subcommands(command_class, name)
            assert {word for word in options if word.startswith("-")} <= existing, command
        elif arguments[0] == "make":
            assert {argument for argument in arguments[1:] if "=" not in argument} <= TARGETS, command
        elif arguments[0] == "pip":
            check_requirement(arguments[-1])


def check_requirement(text: str) -> None:
    project = metadata()
    match = re.fullmatch(r"([\w-]+|\.)(?:\[([\w,]+)\])?", text)
    assert match is not None
    assert match[1] in (project["name"], ".")  # or a checkout
    assert set((match[2] or "").split(",")) - {""} <= set(project["optional-dependencies"])


# --- versions ----------------------------------------------------------------------------------------------------


def metadata() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def test_supported_versions_are_the_same_everywhere() -> None:
    project, readme = metadata(), page("README.md").text
    python = [text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r"Python :: 3\.\d+$", text)]
    django = [text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r"Django :: \d", text)]
    assert f"Python {', '.join(python[:-1])} and {python[-1]};" in readme
    assert f"Django {', '.join(django[:-1])} and {django[-1]}." in readme
    assert project["requires-python"] == f">={python[0]}"
    for name in ("README.md", "docs/tutorial/index.md"):
        assert f"Python {python[0]} or newer" in page(name).text
    newest = f"{django[-1].split('.')[0]}.{int(django[-1].split('.')[1]) + 1}"
    requirement = next(text for text in project["dependencies"] if text.startswith("Django"))
    assert requirement == f"Django>={django[0]},<{newest}"
    assert requirement in (ROOT / "requirements.txt").read_text()
    ci = (ROOT / ".ci/run").read_text()
    assert f"lowest versions on Python {python[0]}" in ci
    assert sorted(re.findall(r"' django_on (\S+) (\S+)", ci)) == list(zip(python[1:], django[1:], strict=True))
    for server in ("SQLite", "MariaDB", "PostgreSQL"):
        assert server in readme
        assert f"phase '{server}" in ci or server == "SQLite"


def test_workflows_test_the_supported_versions_with_targets_that_exist() -> None:
    workflows = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    assert set(re.findall(r"run: make ([a-z-]+)", "".join(workflows.values()))) == {"test", "docs", "release"}
    assert {"test", "docs", "release"} <= TARGETS
    assert " .ci/run " in workflows["ci.yml"]
    versions = [text.rpartition(" ")[2] for text in metadata()["classifiers"] if re.search(r"Python :: 3\.\d+$", text)]
    (listed,) = re.findall(r"python: \[(.+)\]", workflows["ci.yml"])
    matrix = re.findall(r'"([\d.]+)"', listed)
    assert matrix[: len(versions)] == versions
    allowed = re.findall(r"continue-on-error: \$\{\{ matrix.python == '([\d.]+)' \}\}", workflows["ci.yml"])
    assert matrix[len(versions) :] == allowed == ["3.14"]


def test_licence_and_changelog_fit() -> None:
    licence = metadata()["license"]
    assert f"[{licence}](LICENSE)" in page("README.md").text
    assert (ROOT / "LICENSE").read_text().startswith(f"{licence} License")
    (newest, date), *older = re.findall(r"^## \[([^\]]+)\] - (.+)$", page("CHANGELOG.md").text, re.MULTILINE)
    assert newest == resty_django.__version__
    dates = [released for _, released in older] if date == "not released yet" else [date, *dict(older).values()]
    assert [text for text in dates if not re.fullmatch(r"20\d\d-\d\d-\d\d", text)] == []


def test_apps_are_documented() -> None:
    rows = page("docs/explanation/architecture.md").table("app", "label")
    assert [code(row[0]) for row in rows] == list(resty_django.ALL_APPS)
    for name, label, *_ in rows:
        assert apps.get_app_config(code(label)).name == code(name)
