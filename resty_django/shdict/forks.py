"""What an engine does around a fork, also where it is imported while one is under way.

Python calls the hooks that were there when the fork began. One of those may wait for a thread that imports an engine,
so the engine's own would come too late: it has them called from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

before: Final[list[Callable[[], None]]] = []
in_parent: Final[list[Callable[[], None]]] = []
in_child: Final[list[Callable[[], None]]] = []


def _call(hooks: list[Callable[[], None]]) -> None:
    for hook in hooks:
        hook()


os.register_at_fork(
    before=lambda: _call(before), after_in_parent=lambda: _call(in_parent), after_in_child=lambda: _call(in_child)
)
