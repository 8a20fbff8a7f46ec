"""The addresses of the project, used by messages, the README in the wheel and the wheel's metadata.

The project has no public address yet. Once it does, set all three; `hatch_build.py` and all callers of `documentation`
then use them.
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
    """Return the location of a file in the repository, such as `docs/reference/settings.md#ids`.

    This is a URL if `SITE` is set, and otherwise the path itself.
    """
    return f"{site}/{path}" if site else path


def see(path: str) -> str:
    """Return the end of a message, ` See <URL>.`; nothing if `SITE` is empty, since the wheel contains no such file."""
    return f" See {SITE}/{path}." if SITE else ""
