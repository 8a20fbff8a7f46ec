"""Import from id_server: its configuration, Lua rules and counter table.

`config` and `table` read the data, `plan` plans the import without writing, and `Plan.apply` writes it in one
transaction. The command is `manage.py import_id_server`.
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
