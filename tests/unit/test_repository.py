"""The repository holds nothing that works on one machine only."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LARGEST: Final = 1_000_000
"""Bytes that a tracked file may have."""
LINK_MODES: Final = frozenset(("120000", "160000"))
"""Git's modes of a symbolic link and of a submodule."""
MACHINE_PATH: Final = re.compile(
    rb"(?<![\w.<>:/~-])/(?:home|root|Users|tmp|var/tmp|var/folders|private|mnt|work|workspace|builds)(?:/[\w.-]+|\b(?!/))"
)
"""The home, temporary folder or checkout of a machine. A URL, or a path below `~` or a variable, is not one."""
ALLOWED: Final = {
    "docs/production/files/compose.yaml": {b"/tmp"},
    "tests/test_docs_production.py": {b"/mnt", b"/mnt/db.sqlite3", b"/tmp"},
    "tests/unit/test_repository.py": {
        b"/home/somebody",
        b"/tmp/venv",
        b"/Users/somebody",
        b"/mnt",
        b"/mnt/db.sqlite3",
        b"/tmp",
    },
}
"""Paths that are meant: examples for the reader, and the ones below."""


@dataclass(frozen=True)
class Tracked:
    """An entry of `git ls-files -s`. `data` is the content, or the target of a link."""

    mode: str
    path: str
    data: bytes


def faults_of(entry: Tracked) -> list[str]:
    """Return a sentence for each reason why the file would break or burden another machine."""
    faults = []
    if entry.mode in LINK_MODES:
        faults.append(f"{entry.path} is a link or a submodule.")
    if len(entry.data) > LARGEST:
        faults.append(f"{entry.path} has {len(entry.data):,} bytes.")
    if b"\0" not in entry.data[:8000]:
        paths = set(MACHINE_PATH.findall(entry.data)) - ALLOWED.get(entry.path, set())
        faults += [f"{entry.path} names {path.decode()}, a path of one machine." for path in sorted(paths)]
    return faults


def tracked() -> list[Tracked]:
    """Everything in the index, with the content that is committed or staged."""
    listing = subprocess.run(["git", "ls-files", "-s", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    heads, paths = [], []
    for line in filter(None, listing.decode().split("\0")):
        head, _, path = line.partition("\t")
        heads.append(head.split())
        paths.append(path)
    names = "".join(f"{blob}\n" for _, blob, _ in heads).encode()
    stream = subprocess.run(["git", "cat-file", "--batch"], cwd=ROOT, input=names, capture_output=True, check=True)
    entries, position = [], 0
    for (mode, _, _), path in zip(heads, paths, strict=True):
        end = stream.stdout.index(b"\n", position)
        header = stream.stdout[position:end].split()
        size = int(header[2]) if len(header) == 3 else 0  # a submodule's commit is not in this repository
        entries.append(Tracked(mode, path, stream.stdout[end + 1 : end + 1 + size]))
        position = end + 1 + (size + 1 if len(header) == 3 else 0)
    return entries


def test_nothing_tracked_belongs_to_one_machine() -> None:
    entries = tracked()
    assert {"manage.py", "README.md", "resty_django/__init__.py"} <= {entry.path for entry in entries}
    assert [fault for entry in entries for fault in faults_of(entry)] == []


@pytest.mark.parametrize(
    "entry",
    [
        Tracked("120000", ".venv", b"venv"),
        Tracked("160000", "vendor", b""),
        Tracked("100644", "large.bin", b"\0" * (LARGEST + 1)),
        Tracked("100644", "a.py", b'path = "/home/somebody/site"'),
        Tracked("100644", "a.cfg", b"home=/" + b"root\n"),
        Tracked("100644", "a.sh", b"cd /tmp/venv/bin"),
        Tracked("100644", "a.md", b"(/Users/somebody)"),
        Tracked("100755", "a.toml", b"cache = '/tmp'"),
    ],
    ids=lambda entry: entry.path,
)
def test_faults_are_noticed(entry: Tracked) -> None:
    assert len(faults_of(entry)) == 1


@pytest.mark.parametrize(
    "data", [b"https://example.com/home/x", b"~/tmp/x", b"docs/root/x", b"<tmp>/root/x", b"/homes", b"/rooted/x"]
)
def test_other_paths_are_not_faults(data: bytes) -> None:
    assert faults_of(Tracked("100644", "a.md", data)) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_virtual_environment_is_ignored(tmp_path: Path, kind: str) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())
    for name in (".venv", ".venv-mysql"):
        path = tmp_path / name
        if kind == "file":
            path.touch()
        elif kind == "folder":
            path.mkdir()
            (path / "pyvenv.cfg").touch()
        else:
            path.symlink_to(tmp_path)
    status = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, check=True, text=True)
    assert status.stdout == "?? .gitignore\n"


def test_tests_of_the_job_queues_core_and_client_run_on_each_server() -> None:
    """CI runs tests marked `contract` on other Redis servers; a new file of these folders needs the marker."""
    of_servers = [
        entry
        for entry in tracked()
        if re.fullmatch(r"(tests/integration/qless/(core|clients)/test_.*|.*/test_contract.*)\.py", entry.path)
        and b"mark.redis" in entry.data
    ]
    assert [entry.path for entry in of_servers if b"mark.contract" not in entry.data] == []


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
