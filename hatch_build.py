"""Metadata of the wheel that depends on the project's addresses: URLs, and the README with links that work anywhere."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#|mailto:)([^)\s]+)")
"""A Markdown link or image whose target is a path of the repository."""
CODE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
"""A block of code, in which nothing is a link."""


class AddressMetadataHook(MetadataHookInterface):
    """Fill in `readme` and `urls` from `resty_django/address.py`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        address = runpy.run_path(str(root / "resty_django" / "address.py"))
        readme = root.joinpath("README.md").read_text(encoding="utf-8")
        names = ("SITE", "SOURCE", "IMAGES", "REPOSITORY")
        metadata.update(described(readme, address["page_url"], *(address[name] for name in names)))


def described(
    readme: str,
    page_url: Callable[[str, str], str],
    site: str,
    source: str = "",
    images: str = "",
    repository: str = "",
) -> dict[str, Any]:
    """Return the metadata for these addresses; without a site there are no URLs, and links stay as they are."""

    def absolute(match: re.Match[str]) -> str:
        path = match[2]
        if match[1].startswith("!"):
            return f"{match[1]}{images or source}/{path}"
        return match[1] + (page_url(path, site) if path.startswith("docs/") else f"{source}/{path}")

    if site:
        parts = CODE.split(readme)
        parts[::2] = [LINK.sub(absolute, part) for part in parts[::2]]
        readme = "".join(parts)
    metadata: dict[str, Any] = {"readme": {"content-type": "text/markdown", "text": readme}, "urls": {}}
    if site:
        metadata["urls"] = {
            "Homepage": site,
            "Documentation": site,
            "Changelog": f"{site}/changelog.html",
        }
    if repository:
        pages = repository.removesuffix(".git")
        metadata["urls"] |= {"Source": pages, "Issues": f"{pages}/issues"}
    return metadata
