"""System checks of the settings: everything that `RESTY_DJANGO` has wrong, with an id, a hint and a place to read.

| id | meaning |
|---|---|
| `resty_django.E001` | a key that is not a setting |
| `resty_django.E002` | a value of the wrong type |
| `resty_django.E003` | a value out of its bounds, or one that does not fit another |
| `resty_django.E004` | a part is set whose package is not installed |
| `resty_django.E005` | an app of this package is installed without the core app `resty_django` |
| `resty_django.W001` | a section is set whose app is not in `INSTALLED_APPS` |
| `resty_django.W002` | a signing key of the UDP server is short enough to be guessed |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, Warning

from resty_django.conf import SECTIONS, all_problems, conf, raw_section
from resty_django.schema import Kind, anchor, key_text

IDS: Final[dict[Kind, str]] = {
    "unknown": "resty_django.E001",
    "type": "resty_django.E002",
    "value": "resty_django.E003",
    "missing": "resty_django.E004",
}
CORE: Final = "resty_django"
SHORTEST_KEY: Final = 16


def check_core(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Whether the core app is there; each of our other apps registers this check."""
    if apps.is_installed(CORE):
        return []
    return [
        Error(
            f"{config.name} is in INSTALLED_APPS, but {CORE}, which it stands on, is not.",
            hint=f'Add "{CORE}" to INSTALLED_APPS, or everything by resty_django.ALL_APPS. See {anchor(())}.',
            id="resty_django.E005",
        )
        for config in apps.get_app_configs()
        if config.name.startswith(f"{CORE}.")
    ]


def check_settings(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """One message a problem; an empty list when the settings are right."""
    problems = all_problems()
    messages: list[CheckMessage] = [
        Error(problem.message, hint=f"See {problem.anchor}.", id=IDS[problem.kind]) for problem in problems
    ]
    messages += _sections_without_app()
    if not problems:
        messages += _short_keys()
    return messages


def _sections_without_app() -> list[CheckMessage]:
    return [
        Warning(
            f"{key_text((key,))} has no effect, because {entry.app} is not in INSTALLED_APPS.",
            hint=f'Add "{entry.app}" to INSTALLED_APPS, or take the section away. See {anchor((key,))}.',
            id="resty_django.W001",
        )
        for key, entry in SECTIONS.items()
        if raw_section(key) and not apps.is_installed(entry.app)
    ]


def _short_keys() -> list[CheckMessage]:
    if all(len(key.encode()) >= SHORTEST_KEY for key in conf.ids.udp.keys):
        return []
    return [
        Warning(
            f"{key_text(('IDS', 'UDP', 'KEYS'))} holds a key of less than {SHORTEST_KEY} bytes.",
            hint=f"Use secrets.token_hex(16) to make one. See {anchor(('IDS', 'UDP', 'KEYS'))}.",
            id="resty_django.W002",
        )
    ]
