"""Tools to test code that has limits.

    with frozen_limits() as clock:              # no limit has been used, and time stands still
        assert_limited(client.get, "/login/", times=5)
        clock.tick(60)

    with no_limits():                           # everything passes
        client.get("/login/")

See docs/reference/limits/testing.md. For pytest: `pytest_plugins = ["resty_django.limits.testing.pytest_plugin"]`.
"""

from .assertions import LimitsTestMixin, assert_limited, assert_not_limited
from .stores import FrozenClock, frozen_limits, no_limits

__all__ = ["FrozenClock", "LimitsTestMixin", "assert_limited", "assert_not_limited", "frozen_limits", "no_limits"]
