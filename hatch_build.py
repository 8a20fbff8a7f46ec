"""Metadata of the wheel that depends on the project's address: URLs, and the README with links that work anywhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s]+)")
"""The target of a Markdown link or image that is a path of the repository."""


class AddressMetadataHook(MetadataHookInterface):
    """Fill in `readme` and `urls` from `resty_django/address.py`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        address = runpy.run_path(str(root / "resty_django" / "address.py"))
        metadata.update(described(root.joinpath("README.md").read_text(encoding="utf-8"), address["SITE"]))


def described(readme: str, site: str) -> dict[str, Any]:
    """Return the metadata for a site; without one there are no URLs, and the README stays as it is."""
    text = LINK.sub(rf"{site}/\1", readme) if site else readme
    metadata: dict[str, Any] = {"readme": {"content-type": "text/markdown", "text": text}, "urls": {}}
    if site:
        metadata["urls"] = {
            "Homepage": site,
            "Documentation": f"{site}/docs/index.md",
            "Changelog": f"{site}/CHANGELOG.md",
        }
    return metadata
