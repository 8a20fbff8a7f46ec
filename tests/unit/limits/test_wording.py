"""Limits in words."""

from __future__ import annotations

import pytest

from resty_django.limits.limiters import descriptions


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        (descriptions.leaky_bucket(200, 100), "200 requests/s, up to 100 wait, then refused"),
        (descriptions.leaky_bucket(1), "1 request/s, then refused"),
        (descriptions.leaky_bucket(2.5, 0.5), "2.5 requests/s, up to 0.5 wait, then refused"),
        (descriptions.leaky_bucket(0.5), "30 requests/min, then refused"),
        (descriptions.leaky_bucket(5 / 3600, 1), "5 requests/h, up to 1 wait, then refused"),
        (descriptions.leaky_bucket(1 / 7), "8.571 requests/min, then refused"),
        (descriptions.leaky_bucket(1e-7), "0.009 requests/day, then refused"),
        (descriptions.fixed_window(5000, 3600), "5,000 requests per hour from the first one on, then refused"),
        (descriptions.fixed_window(1, 90), "1 request per 90 seconds from the first one on, then refused"),
        (descriptions.sliding_window(10, 120), "about 10 requests in any 2 minutes, then refused"),
        (descriptions.concurrency(100, 20), "100 requests at a time, up to 20 wait, then refused"),
        (
            descriptions.token_bucket(500, 3, 1, 700),
            "3 requests at once, then 1 request each 500 ms; refused if the wait would exceed 700 ms",
        ),
        (
            descriptions.token_bucket(100, 10, 2),
            "10 requests at once, then 2 requests each 100 ms; the others wait without a limit",
        ),
        (descriptions.token_bucket(1000, 0, 1, 0), "1 request each 1 second, then refused"),
    ],
)
def test_limits_in_words(description: str, expected: str) -> None:
    assert description == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0005, "0.5 ms"), (1, "1 second"), (1.5, "1.5 seconds"), (60, "1 minute"), (7200, "2 hours"), (86_400, "1 day")],
)
def test_spans_of_time(seconds: float, expected: str) -> None:
    assert descriptions.duration(seconds) == expected
