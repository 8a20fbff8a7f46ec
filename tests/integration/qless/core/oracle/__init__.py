"""The rules of the job queue as the specification tells them, in plain Python: what the core is compared with."""

from .core import Oracle
from .store import Refused, Store, plain

__all__ = ["Oracle", "Refused", "Store", "plain"]
