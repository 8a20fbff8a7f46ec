"""Bans of keys: listed, added and lifted by code. Limits ban keys with their option `ban`.

from resty_django.limits import bans

bans.add("192.0.2.7", for_="1h", reason="scans for passwords")
bans.lift("192.0.2.7")
"""

from ..specs.ban import BanRule
from .registry import ALL_LIMITS, Ban, aadd, add, afind, count_not_stored, current_bans, find, lift

__all__ = [
    "ALL_LIMITS",
    "Ban",
    "BanRule",
    "aadd",
    "add",
    "afind",
    "count_not_stored",
    "current_bans",
    "find",
    "lift",
]
