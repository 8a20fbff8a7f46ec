"""System check of shared dictionaries.

Checks:
    resty_django.W009: With `--deploy`: /dev/shm is missing, cannot be written, or is smaller than all dictionaries
        without `PATH` together, so that some may be on a disk. Enlarge it, lower `SIZE`, or set `PATH`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from django.apps import AppConfig
from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.template.defaultfilters import filesizeformat

from resty_django.address import see
from resty_django.conf import conf


def check_memory(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return a warning if the dictionaries do not fit into the memory file system of this machine."""
    from .lmdb.files import MEMORY_FOLDER

    try:
        sections = conf.shared_dicts.values()
    except ImproperlyConfigured:
        return []  # the settings check reports it
    needed = sum(section.size for section in sections if section.engine == "lmdb" and section.path is None)
    if not needed:
        return []
    fault = f"{MEMORY_FOLDER} cannot be written"
    if os.access(MEMORY_FOLDER, os.W_OK | os.X_OK):
        system = os.statvfs(MEMORY_FOLDER)
        size = system.f_blocks * system.f_frsize
        if size >= needed:
            return []
        fault = f"{MEMORY_FOLDER} has only {filesizeformat(size)}"
    return [
        Warning(
            f"The shared dictionaries may need {filesizeformat(needed)}, but {fault}, so some may be on a disk.",
            hint=f"Enlarge {MEMORY_FOLDER} (Docker: --shm-size), lower SIZE, or set PATH."
            f"{see('docs/reference/shared/shdict.md')}",
            id="resty_django.W009",
        )
    ]
