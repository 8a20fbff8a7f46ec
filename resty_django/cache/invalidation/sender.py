"""The identity of this process in invalidations."""

from __future__ import annotations

import os
import secrets
from typing import Final

from resty_django.forks import after_fork


class _Sender:
    """Identifies this process's broadcasts among the broadcasts of all processes and machines."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        self.token = f"{os.getpid()}:{secrets.token_hex(8)}"


sender: Final = _Sender()
after_fork(sender.after_fork)
