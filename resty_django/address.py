"""The addresses of the project, used by messages, the README in the wheel and the wheel's metadata.

The project has no public address yet. Once it does, set all four; `hatch_build.py` and `see` use them.
"""

from __future__ import annotations

from typing import Final

SITE: Final = ""
"""The URL of the site of the docs, which `make docs` builds, without a slash at the end. Empty: unknown."""
SOURCE: Final = ""
"""The URL of the pages that show the files of the repository. Empty: unknown."""
IMAGES: Final = ""
"""The URL of the bare files, which images need, as hosts show a page around each file. Empty: the same as `SOURCE`."""
REPOSITORY: Final = ""
"""The URL for `git clone`. Empty: unknown."""


def page_url(path: str, site: str) -> str:
    """Return the URL of a page of the docs: of `docs/settings.md#ids`, this is `<site>/settings.html#ids`."""
    file, mark, fragment = path.removeprefix("docs/").partition("#")
    return f"{site}/{file.removesuffix('.md')}.html{mark}{fragment}"


def see(path: str) -> str:
    """Return the end of a message, ` See <URL>.`; nothing if `SITE` is empty, since the wheel contains no such file."""
    return f" See {page_url(path, SITE)}." if SITE else ""
