"""The middleware of the worker, under the path from which sites import it."""

from __future__ import annotations

from .. import middleware
from ..middleware import *  # noqa: F403

__all__ = middleware.__all__
