"""Fork hooks of the engines, which also run when an engine is imported during a fork.

Python calls only hooks that were registered before the fork began. One of them may wait for a thread that imports an
engine, so hooks registered by that engine would come too late. Therefore the engines register their hooks here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from resty_django.processes.forks import after_fork

before: Final[list[Callable[[], None]]] = []
in_parent: Final[list[Callable[[], None]]] = []
in_child: Final[list[Callable[[], None]]] = []


def _call(hooks: list[Callable[[], None]]) -> None:
    for hook in hooks:
        hook()


after_fork(lambda: _call(in_child), before=lambda: _call(before), parent=lambda: _call(in_parent))
