"""The URLs of a site in a test, which puts its own list in this one's place."""

from __future__ import annotations

from typing import Any

urlpatterns: list[Any] = []
