"""The pages of the documentation as data: their blocks, tables, anchors and links, and a way to run their Python.

In a Python block, a comment that is a literal is the value of its statement:

    next_id("order_id", app="shop")  # "O261121000000"

`execute` checks such comments. A block after `<!-- append: FILE -->` or `<!-- write: FILE -->` is the text of a file.
"""

from __future__ import annotations

import ast
import importlib
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resty_django.conf import SECTIONS
from resty_django.conf.schema import page_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))

_FENCE = re.compile(
    r"(?:^<!-- (?P<how>append|write): (?P<file>\S+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")

Same = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Block:
    """A fenced block. `how` and `file` say what becomes of it, where a comment before it does."""

    page: str
    line: int
    language: str
    text: str
    how: str = ""
    file: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Return the commands of a console block."""
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]


@dataclass(frozen=True)
class Page:
    """A Markdown file. `path` is relative to the root of the project."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def text(self) -> str:
        return (ROOT / self.path).read_text()

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> list[Block]:
        fenced = []
        for match in _FENCE.finditer(self.text):
            line = self.text.count("\n", 0, match.start("language")) + 2
            text = re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
            fenced.append(Block(self.name, line - 1, match["language"], text, match["how"] or "", match["file"] or ""))
        return fenced

    @property
    def spans(self) -> list[str]:
        """The inline code of the prose."""
        return _SPAN.findall(self.prose)

    @property
    def links(self) -> list[str]:
        return _LINK.findall(_SPAN.sub("", self.prose))

    @property
    def anchors(self) -> set[str]:
        """Return the targets of links into this page: headings as GitHub's anchors, and `<a id=...>`."""
        names = set(re.findall(r'<a id="([^"]+)"></a>', self.prose))
        if ":::{settings}" in self.prose:  # rows that the site generates
            paths = (path for section in SECTIONS.values() for path in section.paths())
            names.update(page_of(path).partition("#")[2] for path in paths)
        for heading in re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE):
            plain = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
            number, anchor = 0, plain
            while anchor in names:
                number += 1
                anchor = f"{plain}-{number}"
            names.add(anchor)
        return names

    def table(self, *head: str) -> list[list[str]]:
        """The rows of the table whose first columns have these headings."""
        lines = self.text.splitlines()
        for at, line in enumerate(lines):
            if line.startswith("|") and tuple(_cells(line)[: len(head)]) == head:
                rows = []
                for row in lines[at + 2 :]:
                    if not row.startswith("|"):
                        break
                    rows.append(_cells(row))
                return rows
        raise AssertionError(f"{self.name} has no table with the columns {', '.join(head)}")

    @property
    def members(self) -> set[str]:
        """Return the names in the tables that the directive `members` makes of docstrings."""
        members = importlib.import_module("members")
        found = re.findall(r"^:::\{members\} (\S+)\n((?:\w+: .*\n)?):::$", self.text, re.MULTILINE)
        tables = [members.members(path, {"omit": omit.removeprefix("omit: ")}) for path, omit in found]
        return set(re.findall(r"^\| `(\w+)", "\n".join(tables), re.MULTILINE))


def pages() -> list[Page]:
    """README, changelog, and everything in docs/."""
    paths = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    return [Page(path.relative_to(ROOT)) for path in paths]


def page(name: str) -> Page:
    return Page(Path(name))


def blocks(*languages: str) -> Iterator[Block]:
    """All blocks in one of the languages."""
    for doc_page in pages():
        for block in doc_page.blocks:
            if block.language in languages:
                yield block


def code(cell: str) -> str:
    """The first inline code of a table's cell."""
    match = _SPAN.search(cell)
    assert match is not None, f"no code in {cell!r}"
    return match[1]


def execute(
    block_text: str, origin: str, namespace: dict[str, Any], same: Same = lambda documented, got: documented == got
) -> int:
    """Run a Python block in `namespace` and count the values in comments. Raise `AssertionError` for a wrong one."""
    documented = _told(block_text)
    tree = ast.parse(block_text, origin)
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr | ast.Assign) and node.end_lineno in documented:
            count += 1
            arguments = [node.value, ast.Constant(node.end_lineno)]
            node.value = ast.Call(ast.Name("__told__", ast.Load()), arguments, [])

    def check(got: Any, line: int) -> Any:
        assert same(documented[line], got), (
            f"{origin}, line {line} of the block: {got!r}, the comment says {documented[line]!r}"
        )
        return got

    namespace["__told__"] = check
    exec(compile(ast.fix_missing_locations(tree), origin, "exec"), namespace)  # noqa: S102
    return count


def _told(text: str) -> dict[int, Any]:
    """The literals in comments by line."""
    literals = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            try:
                literals[token.start[0]] = ast.literal_eval(token.string.lstrip("# "))
            except (ValueError, SyntaxError):
                continue
    return literals


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
