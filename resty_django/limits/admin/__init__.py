"""The admin of limits: policies in words, their statistics, and operations on them."""

from __future__ import annotations

from django.contrib import admin

from ..models import LimitPolicy
from .policies import LimitPolicyAdmin

admin.site.register(LimitPolicy, LimitPolicyAdmin)

__all__ = ["LimitPolicyAdmin"]
