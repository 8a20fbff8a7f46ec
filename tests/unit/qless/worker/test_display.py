"""The terminal display."""

from __future__ import annotations

from resty_django.qless.management.live_display import printable


def test_names_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
