"""External text in logs and terminals: it forges no line, steers no terminal and can be encoded.

Tables cover the whole package: a new module that logs and a new command fail here until they are listed. Pages are in
test_routes.py.
"""

from __future__ import annotations

import ast
import importlib
import io
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from django.core.management import get_commands, load_command_class
from django.db import connections

import resty_django
from resty_django.text import logger, one_line, printable
from tests.integration.routes_site import HOSTILE, STORABLE, RoutesSite
from tests.integration.routes_site import filled_site as filled_site
from tests.integration.routes_site import site as site

SURROGATE: Final = "\ud800\udcff"
PACKAGE: Final = Path(resty_django.__file__).parent
LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}
MASKED: Final = re.compile(r"%(?:\((\w+)\))?[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?([a-zA-Z%])")


def assert_one_line(text: str) -> None:
    assert text.isprintable(), ascii(text)
    text.encode()


# --- the functions ---


@pytest.mark.parametrize("text", [HOSTILE, SURROGATE, "\x00" * 10, "\n" * 5, "a" * 2000, ""])
def test_escaped_texts_are_harmless(text: str) -> None:
    assert_one_line(one_line(text))
    assert_one_line(printable(text, 500).replace("\n", "").replace("\t", ""))


def test_text_without_control_characters_is_left_alone() -> None:
    assert one_line("plain é 漢字 <b> %s \\n") == "plain é 漢字 <b> %s \\n"
    assert printable("two\nlines\tand a tab", 100) == "two\nlines\tand a tab"


# --- every log call ---


def log_calls() -> Iterator[tuple[str, int, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("log", "logger", "logging")
                and node.func.attr in LEVELS
            ):
                yield module, node.lineno, node


CALLS: Final = list(log_calls())


def template_of(call: ast.Call) -> str | None:
    """The literal text of the call, which may be put together of literals."""
    first = call.args[1 if call.func.attr == "log" else 0]  # type: ignore[attr-defined]
    parts = [first]
    if isinstance(first, ast.IfExp):
        parts = [first.body, first.orelse]
    texts = [node.value for node in parts if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return texts[0] if len(texts) == len(parts) else None


def test_every_module_gets_its_logger_where_text_is_escaped() -> None:
    direct = [
        f"{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "text" / "__init__.py" and re.search(r"\bgetLogger\(", path.read_text())
    ]
    assert direct == [], "use resty_django.text.logger"
    assert len(CALLS) > 90
    assert {call.func.value.id for _, _, call in CALLS} == {"log"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("module", "line", "call"), CALLS, ids=[f"{module}:{line}" for module, line, _ in CALLS])
def test_no_log_call_lets_external_text_through(module: str, line: int, call: ast.Call) -> None:
    template = template_of(call)
    assert template is not None, f"{module}:{line}: the text of a log call is a literal; what varies is an argument"
    log = importlib.import_module(module).log
    args: list[Any] = [Evil() if kind in "sra" else 1 for _, kind in MASKED.findall(template) if kind != "%"]
    assert_harmless(emitted(log, template, args), lines=1)
    with_error = emitted(log, template, args, error=ValueError(HOSTILE + SURROGATE))
    assert_harmless(with_error)
    head, *following = with_error.split("\n")
    assert all(text.startswith("  ") for text in following), "a line of a traceback looks like a record"
    assert not head.startswith(" ")


class Evil:
    def __str__(self) -> str:
        return HOSTILE + SURROGATE

    __repr__ = __str__


def emitted(log: logging.Logger, template: str, args: list[Any], error: Exception | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    log.addHandler(handler)
    propagate, log.propagate = log.propagate, False
    try:
        if error is None:
            log.critical(template, *args)
        else:
            try:
                raise error
            except ValueError:
                log.critical(template, *args, exc_info=True)
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
    return stream.getvalue().removesuffix("\n")


def assert_harmless(text: str, lines: int | None = None) -> None:
    parts = text.split("\n")
    assert lines is None or len(parts) == lines, ascii(text)
    for fragment in parts:
        assert_one_line(fragment)


def test_numbers_and_mappings_stay_usable_in_log_calls() -> None:
    log = logger("resty_django.tests")
    assert emitted(log, "%d %.1f %s %(name)s".replace(" %(name)s", ""), [3, 2.5, None]) == "CRITICAL 3 2.5 None"
    assert emitted(log, "%(name)s", [{"name": "a\nb"}]) == "CRITICAL a\\nb"
    assert logger("resty_django.tests").filters == log.filters
    assert len(log.filters) == 1


# --- every command ---


@pytest.fixture(scope="module")
def people() -> list[list[list[str]]]:
    """Nobody, since commands need no permission."""
    return []


COMMANDS: Final[dict[str, list[list[str]]]] = {
    "resty_check": [[], ["--json"], ["--only", HOSTILE]],
    "resty_metrics": [[], ["--rules"], ["--dashboard"]],
    "txid": [["parse", HOSTILE], ["make", HOSTILE], ["batch", HOSTILE], ["min", HOSTILE]],
    "qless_archive": [[], ["--again"], ["--status", "--json"]],
    "qless_outbox": [["--once"], ["--status"], ["--redeliver-since", HOSTILE]],
    "qless_core": [["--prefix", HOSTILE]],
    "qless_recurring": [[], ["--prune", "--dry-run"]],
    "qless_workers": [["list"], ["quiet", HOSTILE], ["stacks", HOSTILE, "--wait", "0"]],
    "runqless": [["--reserver", HOSTILE, "--queues", HOSTILE], ["--queues", ","]],
    "limits_policies": [["dump", "-", "--overrides"], ["load", "{file}"], ["load", HOSTILE.replace("\x00", "")]],
    "quotas_prune": [[], ["--keep", HOSTILE]],
    "runidserver": [["--host", HOSTILE]],
}


def test_every_command_is_in_the_table() -> None:
    ours = {name for name, app in get_commands().items() if app.startswith("resty_django")}
    assert set(COMMANDS) == ours


@pytest.mark.redis
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "args"),
    [(name, args) for name, runs in COMMANDS.items() for args in runs],
    ids=lambda each: ascii(each)[:40],
)
def test_no_command_prints_external_text_unescaped(
    site: RoutesSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, args: list[str]
) -> None:
    file = tmp_path / "file.json"
    file.write_text(f'{{"format": {ascii(STORABLE)[1:-1]!r}, "rules": []'.replace("'", '"'))
    stdout, stderr = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(connections, "close_all", lambda: None)  # the test's transaction goes on
    command = load_command_class(get_commands()[name], name)
    argv = ["manage.py", name, *(arg.format(file=file) if arg.startswith("{file") else arg for arg in args)]
    with pytest.raises(SystemExit) if name == "runqless" else exits():
        command.run_from_argv([*argv, "--no-color"])
    printed = (stdout.getvalue() + stderr.getvalue()).replace("\tHINT: ", "HINT: ")  # Django prints checks in this way
    assert printed
    assert_harmless(printed)
    assert not re.search(r"^2026-01-01 ERROR forged", printed, re.MULTILINE)


class exits:
    """A command may end by `sys.exit`."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> bool:
        return kind is SystemExit
