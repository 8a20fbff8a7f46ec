"""Find wording that docs, messages, labels, comments and names of tests avoid: `python -m tests.english [PATH]...`.

Prints each place with the rule and the advice; ends with 1 where there is one. Code in Markdown and words in backticks
are left out. A line may keep its wording with `english: keep` in a comment on it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PATHS = (
    *("README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "changes", ".github"),
    *("docs", "resty_django", "project", "templates", "tests"),
)
KEEP = "english: keep"
TITLES = r"(?:What|Whose|Who|Whom|Which|Whoever)"


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in a file with a text to change: line (from 1), the text, and the advice."""

    path: Path
    line: int
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A construction to avoid, and what to write instead."""

    pattern: re.Pattern[str]
    advice: str


def _rule(pattern: str, advice: str) -> Rule:
    return Rule(re.compile(pattern), advice)


RULES = (
    _rule(
        r"(?i)(?<!there )\b(?:is|are|was|were) no (?!longer|more\b|later|earlier|less|matter|other than|such)",
        "is not a ...",
    ),
    _rule(r"(?i)\bfor ever\b", "forever, or indefinitely"),
    _rule(r"(?i)\bbeside\b", "next to, or besides"),
    _rule(r"(?i)\b(?:tells?|told)\b(?! apart)", "reports, shows, distinguishes"),
    _rule(r"(?i)\bof (?:its|their|his|our|one's) own\b", "its own ..., a separate ..."),
    _rule(r"(?i)\b(?:that|those) of\b", "the possessive, or repeat the noun"),
    _rule(r"(?i)\bso (?:many|often|much)\b(?! that\b)", "the number's name: count, interval"),
    _rule(r"(?i)\bso long\b(?! as\b| that\b)", "the number's name: duration"),
    _rule(r"(?i)\b(?:to|can|could|cannot|be) be had\b|\bto be had\b", "available"),
    _rule(r"(?i)\b(?:is|are) there(?=[.,;:)]|$)", "exists, is available"),
    _rule(r"(?i)\bwho(?:m)?ever\b", "if you ..., clients that ..."),
    _rule(r"(?i)\bwhom\b", "name the person or the program"),
    _rule(r"(?:^|[.:;!?] |\| )Who(?: has| is| does| may|(?! knows)(?= [a-z]+s\b))", "clients that ..., if you ..."),
    _rule(rf"^(?:#+ )?{TITLES}\b(?!.*\?)[^.|]*$", "a noun as title, or an imperative"),
    _rule(rf"^(?:#+ )?{TITLES}\b[^?]*?(?:\.$|: )", "a noun as title, or an imperative"),
    _rule(r"(?i)\bgives?\b(?! up\b| way\b| back\b)", "returns, shows, provides"),
    _rule(r"(?i)\b(?:houses?|doors?|desks?|shelf|shelves)\b", "no metaphors: the thing itself"),
    _rule(r"(?i)(?<!credit )\bcards?\b", "no metaphors: the thing itself"),
    _rule(
        r"(?i)\bthe originals?(?:'s)?(?= *[.,;:)]| (?:does|did|has|had|is|was|can|and|or|in|on|to|of)\b|$)",
        "id_server, lua-resty-mlcache, qless-core, ...",
    ),
    _rule(r"(?i)\bsection \d+(?:\.\d+)* of the spec", "say it here"),
    _rule(r"(?i)\bheeds?\b", "obeys"),
    _rule(r"(?i)\bmend(?:s|ed|ing)?\b", "fix"),
    _rule(r"(?i)\b(?:as|if) one likes\b|\b(?:as|if|when) one (?:may|can|has to|wants)\b", "you ..."),
    _rule(r"(?i)\b(?:takes?|taken|took) (?:it |them |this )?away\b", "remove"),
    _rule(r"(?i)\bcarr(?:y|ied|ies) through\b", "complete"),
    _rule(
        r"(?i)\bthere (?:is|are) (?:not )?yet\b|\b(?:is|are) not there\b|\bthat there (?:is|are)\b",
        "does not exist, is missing",
    ),
    _rule(r"(?i)\b(?:somebody|someone|nobody) (?:is|has)\b(?= (?:to|of))", "name the actor"),
    _rule(r"(?i)\bby (?:itself|themselves)\b", "automatically, or on its own"),
    _rule(r"(?i)\bthe way on\b|\bgoes on (?:from|with)\b", "continues, propagates"),
    _rule(r"(?i)\bwhat (?:it|they) (?:is|are) about\b|\bwhat became of\b", "the noun: results, outcome"),
    _rule(r"(?i)\banew\b", "again, from the start"),
    _rule(r"(?i)\bso (?:few|late|early|soon)\b(?! that\b| as\b)", "the number's name: count, time"),
    _rule(r"(?i)\b(?:is|are|has|have) yet to\b", "not ... yet"),
    _rule(r"(?i)\bleft out (?:is|are)\b", "... is left out, or: excludes ..."),
    _rule(r"(?:^|[.:;] )One (?:without|with|that|for|of(?! the))\b", "repeat the noun"),
    _rule(r"\bPure but\b", "Pure, except ..."),
    _rule(r"(?i)\bas it is if\b", "unchanged if"),
    _rule(r"\b[Ff]rom a time on\b|\bof none\b|\bbut for\b", "plain words: since a time; without; except"),
    _rule(r"(?i)\bthither|hither|whither|thence|hence\b|\bwherefore\b|\blest\b", "plain words"),
)
CODE = re.compile(r"``.*?``|`[^`\n]*`")
PROSE = re.compile(r"[A-Za-z]{2,}[ \n]+\W?[A-Za-z]+[ \n]+\W?[A-Za-z]+")


def check(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line (from 0), words and advice of each construction in prose. Lines are joined to paragraphs first."""
    for line, paragraph in _paragraphs(text):
        plain = CODE.sub(lambda match: "`" + " " * (len(match[0]) - 2) + "`", paragraph)
        for rule in RULES:
            for match in rule.pattern.finditer(plain):
                start = plain.rfind(" ", 0, max(match.start() - 20, 0)) + 1
                words = paragraph[start : match.end() + 20].replace("\n", " ")
                yield line + paragraph.count("\n", 0, match.start()), words, rule.advice


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    lines: list[str] = []
    start = 0
    for number, line in enumerate([*text.split("\n"), ""]):
        stripped = line.strip().lstrip("-* ").strip()
        begins = not stripped or line.lstrip().startswith(("#", "|", "- ", "* "))
        if begins and lines:
            yield start, "\n".join(lines)
            lines = []
        if stripped:
            if not lines:
                start = number
            lines.append(stripped)


def _blank_code(text: str) -> str:
    """Replace fenced blocks, and the heads of directives, by empty lines."""
    kept, fenced = [], False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        hidden = fenced or fence or line.startswith(":")
        kept.append("" if hidden else re.sub(r"\]\([^)]*\)|https?://\S+", "]", line))
        fenced ^= fence
    return "\n".join(kept)


def _python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of comments, docstrings and strings that read like prose."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            yield token.start[0], re.sub(r"(?:noqa|type|pragma|nosec|english)\b.*", "", token.string.lstrip("#: "))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "`x`" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _test_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of the names of test functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.removeprefix("test_").replace("_", " ")


def _prose(path: Path, text: str) -> Iterator[tuple[int, str]]:
    if path.suffix == ".py":
        yield from ((line, found) for line, found in _python(text) if PROSE.search(found))
        if path.name.startswith("test_"):
            yield from _test_names(text)
    elif path.suffix == ".lua":
        for number, line in enumerate(text.split("\n"), 1):
            _code, _dashes, comment = line.partition("--")
            yield number, comment
    elif path.suffix == ".html":
        yield 1, re.sub(r"<[^>]*>", lambda tag: "\n" * tag[0].count("\n"), text)
    else:
        yield 1, _blank_code(text)


def findings(path: Path) -> Iterator[Finding]:
    """Yield what a file has to change."""
    text = path.read_text()
    lines = text.split("\n")
    for start, prose in _prose(path, text):
        for offset, words, advice in check(prose):
            line = start + offset
            if KEEP not in lines[min(line, len(lines)) - 1]:
                yield Finding(path, line, words, f"write {advice}")


def files(paths: Iterable[str]) -> Iterator[Path]:
    """Yield files, and the texts and modules in folders, except migrations and the examples of this check's test."""
    for name in paths:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in {".py", ".md", ".html", ".lua"} and not {"migrations", "test_english.py"} & {*file.parts}:
                yield file


def main(*paths: str) -> int:
    status = 0
    for file in files(paths or PATHS):
        for finding in findings(file):
            status = 1
            print(f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.text!r}: {finding.advice}")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
