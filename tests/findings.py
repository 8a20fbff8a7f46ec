"""Findings of the checks of texts (`english`, `gettext_check`), and the files that they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in a file with a text to change: line (from 1), the text, and the advice or the reason."""

    path: Path
    line: int
    text: str
    advice: str


def files(paths: Iterable[str], suffixes: set[str], left_out: set[str]) -> Iterator[Path]:
    """Yield files and all files of folders that have one of the suffixes, except those in folders to leave out."""
    for name in paths:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in suffixes and not left_out & set(file.parts):
                yield file


def report(findings: Iterable[Finding]) -> int:
    """Print each finding, and return the status of the command."""
    status = 0
    for finding in findings:
        status = 1
        print(f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.text!r}: {finding.advice}")
    return status
