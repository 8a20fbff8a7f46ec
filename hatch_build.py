"""Metadata of the wheel that depends on the project's addresses: URLs, and the README with links that work anywhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#|mailto:)([^)\s]+)")
"""A Markdown link or image whose target is a path of the repository."""
CODE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
"""A block of code, in which nothing is a link."""
CLONE = "git clone <this repository>"


class AddressMetadataHook(MetadataHookInterface):
    """Fill in `readme` and `urls` from `resty_django/address.py`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        address = runpy.run_path(str(root / "resty_django" / "address.py"))
        readme = root.joinpath("README.md").read_text(encoding="utf-8")
        metadata.update(described(readme, address["SITE"], address["IMAGES"], address["REPOSITORY"]))


def described(readme: str, site: str, images: str = "", repository: str = "") -> dict[str, Any]:
    """Return the metadata for these addresses; without a site there are no URLs, and links stay as they are."""
    if site:
        parts = CODE.split(readme)
        parts[::2] = [absolute(part, site, images or site) for part in parts[::2]]
        readme = "".join(parts)
    if repository:
        readme = readme.replace(CLONE, f"git clone {repository}")
    metadata: dict[str, Any] = {"readme": {"content-type": "text/markdown", "text": readme}, "urls": {}}
    if site:
        metadata["urls"] = {
            "Homepage": site,
            "Documentation": f"{site}/docs/index.md",
            "Changelog": f"{site}/CHANGELOG.md",
        }
    if repository:
        pages = repository.removesuffix(".git")
        metadata["urls"] |= {"Source": pages, "Issues": f"{pages}/issues"}
    return metadata


def absolute(text: str, site: str, images: str) -> str:
    """Return a text whose links lead to the site, and whose images are loaded from `images`."""
    return LINK.sub(lambda match: f"{match[1]}{images if match[1].startswith('!') else site}/{match[2]}", text)
