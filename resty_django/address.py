"""The address of the project's site: the one place that messages, the README in the wheel and its metadata get it from.

The project has no site yet. Once it has one, set `SITE`; `hatch_build.py` and everything that calls `documentation`
follow.
"""

from __future__ import annotations

from typing import Final

SITE: Final = ""
"""The URL under which the files of the repository can be read, without a slash at the end; empty: there is none."""


def documentation(path: str, site: str = SITE) -> str:
    """Return where the reader finds a file of the repository, such as `docs/settings.md#ids`.

    That is a URL once there is a site, and the path itself until then.
    """
    return f"{site}/{path}" if site else path
