"""The rules of the job queue as the specification describes them, in plain Python: the reference for the core."""

from .core import Oracle
from .store import Refused, Store, plain

__all__ = ["Oracle", "Refused", "Store", "plain"]
