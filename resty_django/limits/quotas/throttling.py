"""A throttle for Django REST framework that limits requests by a quota.

class Exports(QuotaThrottle):
    quota = Quota("exports", 1000, per="month")

class ExportView(APIView):
    throttle_classes = [Exports]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import ImproperlyConfigured

from ..requests.enforcer import Enforcer
from ..requests.request_limit import LimitOptions
from ..throttling import LimitThrottle
from .decorators import enforcer_of
from .quota import Quota

if TYPE_CHECKING:
    from rest_framework.views import APIView


class QuotaThrottle(LimitThrottle):
    """A quota: the attribute `quota` of the throttle's class, or of the view. `cost`: as in `LimitThrottle`.

    A view without a quota is not limited.
    """

    kind = "quota"
    quota: ClassVar[Quota | None] = None

    def _enforcer_for(self, view: APIView) -> Enforcer | None:
        cls = type(self)
        counted: Any = cls.quota or getattr(view, "quota", None)
        if counted is None:
            return None
        if not isinstance(counted, Quota):
            raise ImproperlyConfigured(f"quota of {cls.__name__} or its view must be a Quota, not {counted!r}.")
        known = cls, counted
        enforcer = self._enforcers.get(known)
        if enforcer is None:
            location = f"{cls.__module__}.{cls.__qualname__}"
            options = LimitOptions(key=counted.key, cost=self.cost)
            enforcer = self._enforcers[known] = enforcer_of(counted, options, location)
        return enforcer
