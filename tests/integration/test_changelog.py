"""The changelog: fragments become a section of it, in the order of Keep a Changelog."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def towncrier(folder: pathlib.Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "towncrier", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_fragments_of_the_checkout_can_be_rendered() -> None:
    title = towncrier(ROOT, "build", "--draft").splitlines()[0]
    assert title.startswith("## [")


def test_fragments_become_a_section_above_the_older_ones(tmp_path: pathlib.Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    changes = tmp_path / "changes"
    changes.mkdir()
    shutil.copy(ROOT / "changes" / "README.md", changes)
    (changes / "12.security.md").write_text("Limits: `@limit_req` refuses an empty key.\n")
    (changes / "+cron.added.md").write_text("Jobs: names of months in cron schedules.\n")
    before = (ROOT / "CHANGELOG.md").read_text()
    head, mark, sections = before.partition("<!-- towncrier release notes start -->\n")
    towncrier(tmp_path, "build", "--yes", "--version", "7.0.0", "--date", "2031-01-02")
    assert (tmp_path / "CHANGELOG.md").read_text() == (
        f"{head}{mark}\n## [7.0.0] - 2031-01-02\n\n### Added\n\n- Jobs: names of months in cron schedules.\n\n"
        f"### Security\n\n- Limits: `@limit_req` refuses an empty key. (#12)\n\n{sections}"
    )
    assert [path.name for path in changes.iterdir()] == ["README.md"]
