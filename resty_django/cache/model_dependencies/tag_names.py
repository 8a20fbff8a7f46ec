"""Tags of models; see the package. Pure."""

from __future__ import annotations

import hashlib
from typing import Final

PREFIX: Final = "model:"
ANY_ROW: Final = "*"
LONGEST: Final = 60
"""Maximum length of a primary key or of the names of fields in a tag; longer ones are hashed."""


def base_tag(label: str, fields: frozenset[str] | None) -> str:
    """Return the tag of a table, or of some of its fields. `label`: the model in lower case."""
    return f"{PREFIX}{label}" if fields is None else f"{PREFIX}{label}[{_shortened(','.join(sorted(fields)))}]"


def row_tag(base: str, pk: object) -> str:
    """Return the tag of a row. `base`: the tag of its table. `pk`: its primary key; `ANY_ROW`: unknown rows."""
    return f"{base}:{_shortened(str(pk))}"


def _shortened(text: str) -> str:
    if len(text) <= LONGEST and text.isprintable():
        return text
    return "#" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
