"""The address of the project's website, used by messages, the README in the wheel and the wheel's metadata.

The project has no website yet. Once it does, set `SITE`; `hatch_build.py` and all callers of `documentation` then use
it.
"""

from __future__ import annotations

from typing import Final

SITE: Final = ""
"""The base URL of the repository's files, without a trailing slash; empty if the project has no website."""


def documentation(path: str, site: str = SITE) -> str:
    """Return the location of a file in the repository, such as `docs/settings.md#ids`.

    This is a URL if `SITE` is set, and otherwise the path itself.
    """
    return f"{site}/{path}" if site else path
