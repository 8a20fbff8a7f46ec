"""Values that tasks return in the tests, by name, for all ways in which a task is run."""

from __future__ import annotations

import math
from typing import Any, Final

VALUES: Final[dict[str, Any]] = {
    "none": None,
    "false": False,
    "true": True,
    "zero": 0,
    "zero point": 0.0,
    "empty text": "",
    "empty list": [],
    "empty dict": {},
    "falses": [False, None, [], {}, "", 0],
    "named falses": {"false": False, "none": None, "": ""},
    "long": 2**70,
    "deep": [[[[[[[[[[False]]]]]]]]]],
    "text": 'NaN "Infinity" \\ \x00 \u2028 é 😀',
}
NOT_FINITE: Final[dict[str, Any]] = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "nan inside": {"rows": [1, None, math.nan]},
}
RETURNED: Final = {**VALUES, **NOT_FINITE}
REFUSED: Final = "Job result must be JSON, which has neither NaN nor infinity"
