"""The admin of limits: policies, their statistics, and actions."""

from __future__ import annotations

from django.contrib import admin

from ..models import LimitPolicy
from .policies import LimitPolicyAdmin

admin.site.register(LimitPolicy, LimitPolicyAdmin)

__all__ = ["LimitPolicyAdmin"]
