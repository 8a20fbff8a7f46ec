"""Names of states, and help texts for states of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

STATE_NAMES: Final[Mapping[str, Any]] = {
    "waiting": pgettext_lazy("state", "waiting"),
    "running": pgettext_lazy("state", "running"),
    "stalled": pgettext_lazy("state", "stalled"),
    "scheduled": pgettext_lazy("state", "scheduled"),
    "depends": pgettext_lazy("state", "depends"),
    "failed": pgettext_lazy("state", "failed"),
    "complete": pgettext_lazy("state", "complete"),
    "recurring": pgettext_lazy("state", "recurring"),
    "skipped": pgettext_lazy("state", "skipped"),
    "paused": pgettext_lazy("state", "paused"),
    "open": pgettext_lazy("state", "open"),
    "gone": pgettext_lazy("state", "gone"),
}
"""The names of the states of jobs, groups and queues for people; searches, exports and URLs have the keys."""

GROUP_STATE_HELP: Final[Mapping[str, Any]] = {
    "open": _("Members are still being added."),
    "running": _("Not all members have ended."),
    "complete": _("All members are complete or were skipped."),
    "failed": _("All members have ended. At least one of them has failed or was canceled."),
}
