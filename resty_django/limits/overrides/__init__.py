"""Overrides: rows with which operators change a limit for one user, address, network or key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

readers: list[Callable[[], Any]] = []
"""Two functions for the first use in a process, sync and async, which read the database. The package
`resty_django.limits` registers them when it is imported, since policies and overrides are read together."""
