"""The addresses of the project: the one place that messages, the README in the wheel and its metadata get them from.

The project has no public address yet. Once it has one, set all three; `hatch_build.py` and everything that calls
`documentation` follow.
"""

from __future__ import annotations

from typing import Final

SITE: Final = ""
"""The URL of the pages that show the files of the repository, without a slash at the end. Empty: unknown."""
IMAGES: Final = ""
"""The URL of the bare files, which images need, as hosts show a page around each file. Empty: the same as `SITE`."""
REPOSITORY: Final = ""
"""The URL for `git clone`. Empty: unknown; the README says `<this repository>`."""


def documentation(path: str, site: str = SITE) -> str:
    """Return where the reader finds a file of the repository, such as `docs/settings.md#ids`.

    That is a URL once there is a site, and the path itself until then.
    """
    return f"{site}/{path}" if site else path
