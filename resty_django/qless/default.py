"""The client that the settings describe."""

from __future__ import annotations

import os
from typing import Any, cast

from django.core.signals import setting_changed

from resty_django.conf import conf
from resty_django.schema import SETTING

from .clients import Client

_known: Client | None = None


def default_client() -> Client:
    """One for the process; another after a setting has changed, and after a fork."""
    global _known
    if _known is None:
        section = conf.qless
        _known = Client(
            section.url or section.alias, prefix=section.prefix, worker_name=section.worker_name, name="default"
        )
    return _known


class _Default:
    """Stands for it, and may be kept."""

    def __getattr__(self, name: str) -> Any:
        return getattr(default_client(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(default_client(), name, value)

    def __repr__(self) -> str:
        return repr(default_client())


client = cast(Client, _Default())


def _forget(**kwargs: Any) -> None:
    global _known
    if kwargs.get("setting", SETTING) in {SETTING, "CACHES"}:
        _known = None


setting_changed.connect(_forget, dispatch_uid="resty_django.qless.default")
os.register_at_fork(after_in_child=_forget)

__all__ = ["client", "default_client"]
