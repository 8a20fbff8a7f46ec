"""The picture of the algorithms in docs/images, drawn from the decisions of limiters.

    python -m tests.algorithms_picture

The picture is as wide as a phone. It has its own background in light and in dark mode, because an image does not see
that the reader has switched its page to the other mode.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from resty_django.limits import FixedWindow, LeakyBucket, Limiter, LocalStore, SlidingWindow, TokenBucket

FILE: Final = Path(__file__).resolve().parents[1] / "docs" / "images" / "limits-algorithms.svg"
ARRIVALS: Final = (0, 0, 0, 0, 30, 65, *[118] * 4, *[127] * 4, 150, 150)
"""Seconds."""
SECONDS: Final = 180
TIMES: Final = ((0, "start", "0"), (60, "middle", "1 min"), (120, "middle", "2 min"), (180, "end", "3 min"))
WIDTH: Final = 360
LEFT: Final = 12
ROW: Final = 118
TOP: Final = 42
STEP: Final = 11
"""The distance of two requests that arrive at once."""
STYLE: Final = """
  svg { color-scheme: light dark; }
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .name { font-weight: 600; }
  .small { fill: #57606a; }
  .back { fill: #ffffff; stroke: #d0d7de; }
  .axis { stroke: #8c959f; }
  .left { fill: #b6d4fe; }
  .pass { fill: #0a58ca; stroke: #0a58ca; }
  .refused { fill: none; stroke: #b42318; stroke-width: 1.8; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9da7b3; }
    .back { fill: #161b22; stroke: #3d444d; }
    .axis { stroke: #6e7681; }
    .left { fill: #1d3f6e; }
    .pass { fill: #79b8ff; stroke: #79b8ff; }
    .refused { stroke: #ff9492; }
  }
"""


def draw() -> str:
    """Return the picture."""
    now = 0.0
    given: Any = {"store": LocalStore(), "clock": lambda: now}
    rows: list[tuple[str, str, Limiter]] = [
        ("Leaky bucket", '@limit_req("4/m")', LeakyBucket(4 / 60, **given)),
        ("Fixed window", '@limit_count("4/m")', FixedWindow(4, 60, **given)),
        ("Sliding window", '@limit_window("4/m")', SlidingWindow(4, 60, **given)),
        ("Token bucket", '@limit_rate("4/m", max_wait=0)', TokenBucket("4/m", max_wait=0, **given)),
    ]
    height = TOP + ROW * len(rows) + 12
    passed: dict[str, int] = {}
    parts = []
    for number, (name, decorator, limiter) in enumerate(rows):
        base = TOP + ROW * number + 78
        steps, marks = f"M{_x(0)} {base + 24}", []
        passed[name] = 0
        for second in range(SECONDS):
            now = float(second)
            for stacked in range(ARRIVALS.count(second)):
                allowed = limiter.hit("client").allowed
                passed[name] += allowed
                marks.append(_mark(_x(second), base - 7 - STEP * stacked, allowed))
            rise = 5 * limiter.peek("client").remaining
            steps += f"V{base + 24 - rise}H{_x(second + 1)}"
        ticks = "".join(f'<path class="axis" d="M{_x(tick)} {base}v4"/>' for tick, _, _ in TIMES)
        parts += [
            f'<text class="name" x="{LEFT}" y="{base - 60}">{name}</text>',
            f'<text class="small" x="{WIDTH - LEFT}" y="{base - 60}" text-anchor="end">{decorator}</text>',
            f'<path class="left" d="{steps}V{base + 24}Z"/>',
            f'<path class="axis" d="M{_x(0)} {base}H{_x(SECONDS)}M{_x(0)} {base + 24.5}H{_x(SECONDS)}"/>{ticks}',
            *marks,
            f'<text class="small" x="{WIDTH - LEFT}" y="{base - 44}" text-anchor="end">'
            f"{passed[name]} of {len(ARRIVALS)} pass</text>",
        ]
    times = [
        f'<text class="small" x="{_x(second)}" y="{height - 8}" text-anchor="{anchor}">{label}</text>'
        for second, anchor, label in TIMES
    ]
    totals = ", ".join(f"{name.lower()} {count}" for name, count in passed.items())
    legend = [
        _mark(LEFT + 6, 20, allowed=True),
        f'<text x="{LEFT + 15}" y="24">passes</text>',
        _mark(LEFT + 76, 20, allowed=False),
        f'<text x="{LEFT + 85}" y="24">is refused</text>',
        f'<path class="left" d="M{LEFT + 163} 15h14v10h-14z"/>',
        f'<text x="{LEFT + 183}" y="24">would pass now</text>',
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH * 3 // 2}">',
            "<title>The same requests under four algorithms, with a limit of 4 a minute</title>",
            f"<desc>Of {len(ARRIVALS)} requests in three minutes pass: {totals}.</desc>",
            f"<style>{STYLE}</style>",
            f'<rect class="back" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
            *legend,
            *parts,
            *times,
            "</svg>\n",
        ]
    )


def _x(second: float) -> float:
    return round(LEFT + second * (WIDTH - 2 * LEFT) / SECONDS, 1)


def _mark(x: float, y: float, allowed: bool) -> str:
    if allowed:
        return f'<circle class="pass" cx="{x}" cy="{y}" r="4"/>'
    return f'<path class="refused" d="M{round(x - 3.5, 1)} {y - 3.5}l7 7m0 -7l-7 7"/>'


if __name__ == "__main__":
    FILE.write_text(draw())
