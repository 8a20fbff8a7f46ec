"""Alerts of the site itself, by mail or by a callable, without Prometheus. `RESTY_DJANGO["ALERTS"]` has the rules.

A worker process or `manage.py resty_alerts` compares the metrics with the rules. The state is in a shared dictionary,
so each incident is reported once, however many processes evaluate, and also after a restart.
"""

from __future__ import annotations

from .incidents import Notice as Alert

__all__ = ["Alert"]
