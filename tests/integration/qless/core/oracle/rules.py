"""Score, statistics, history: formulas alone."""

from __future__ import annotations

import math
from typing import Any

DAY = 86400


def score(priority: float, now: float) -> float:
    """Of a waiting job; the highest goes first."""
    return priority - now / 10_000_000_000


def bin_of(now: float) -> str:
    """Midnight of the day, as keys have it."""
    return f"{now - now % DAY:.14g}"


def bucket(value: float) -> str:
    """The field of the histogram."""
    seconds = math.floor(value)
    for name, unit, end in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, DAY)):
        if seconds < end:
            return f"{name}{seconds // unit}"
    return f"d{seconds // DAY}"


HISTOGRAM = [
    *(f"s{n}" for n in range(60)),
    *(f"m{n}" for n in range(1, 60)),
    *(f"h{n}" for n in range(1, 24)),
    *(f"d{n}" for n in range(1, 7)),
]


def measured(stats: dict[str, Any], value: float) -> None:
    """Add a value to a running mean and variance."""
    total = stats.get("total", 0) + 1
    mean, vk = stats.get("mean", 0), stats.get("vk", 0)
    if total == 1:
        stats.update(total=1, mean=value, vk=0)
    else:
        new = mean + (value - mean) / total
        stats.update(total=total, mean=new, vk=vk + (value - new) * (value - mean))
    stats[bucket(value)] = stats.get(bucket(value), 0) + 1


def reported(stats: dict[str, Any]) -> dict[str, Any]:
    total = stats.get("total", 0)
    return {
        "count": total,
        "mean": stats.get("mean", 0),
        "std": math.sqrt(stats["vk"] / (total - 1)) if total > 1 else 0,
        "histogram": [stats.get(field, 0) for field in HISTOGRAM],
    }


def appended(history: list[Any], entry: Any, limit: int) -> None:
    """The first entry is kept, and the latest, `limit` in all."""
    history.append(entry)
    if 0 < limit < len(history):
        history[:] = [history[0], *history[len(history) - limit + 1 :]]
