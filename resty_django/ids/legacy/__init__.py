"""Taking over from id_server: its configuration, its Lua rules, its table of counters.

`config` and `table` read what there is, `plan` decides what becomes of it, without writing; `Plan.apply` writes it
in one transaction. `manage.py import_id_server` is the face of it.
"""

from __future__ import annotations

from .config import Config, IdServerRule, Refused, read_config
from .plan import Plan, PlannedRule, make_plan
from .table import IdServerRow, read_rows

__all__ = [
    "Config",
    "IdServerRow",
    "IdServerRule",
    "Plan",
    "PlannedRule",
    "Refused",
    "make_plan",
    "read_config",
    "read_rows",
]
