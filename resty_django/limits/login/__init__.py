"""The login guard: refuses log-ins after too many failed ones, before a password is hashed."""

from .backend import LoginGuard
from .middleware import LoginGuardMiddleware

__all__ = ["LoginGuard", "LoginGuardMiddleware"]
