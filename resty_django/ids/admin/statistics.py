"""A counter's statistics as the admin shows them. Runs no database queries."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from resty_django.admin.formatting import NONE, date, date_time, duration, free_space_bar, number
from resty_django.conf import conf

from .. import operations
from ..engine import segment
from ..engine.cycle import DAY_SECONDS
from ..engine.rule import RuleSpec
from ..engine.wall_clock import FIRST, datetime_of, wall_at
from ..errors import BadRule, IdError
from ..forecast import Forecast, Outlook, forecast_of
from ..models import IdCounter
from ..preview import capacity


@dataclass(frozen=True)
class CounterStatistics:
    """The statistics of a counter at `now` (epoch seconds). If the rule's time zone is unknown, UTC is used."""

    counter: IdCounter
    now: float

    @classmethod
    def of(cls, counter: IdCounter) -> CounterStatistics:
        """Return the statistics as of now; they are stored on the object, to be computed once per page."""
        statistics = counter.__dict__.get("_statistics")
        if not isinstance(statistics, CounterStatistics):
            statistics = counter.__dict__["_statistics"] = cls(counter, time.time())
        return statistics

    @cached_property
    def spec(self) -> RuleSpec:
        return self.counter.rule.spec()

    @cached_property
    def zone(self) -> ZoneInfo:
        try:
            return self.spec.zone
        except BadRule:
            return ZoneInfo("UTC")

    @cached_property
    def wall(self) -> int:
        return wall_at(self.now, self.zone)

    @property
    def turned(self) -> bool:
        """Whether the stored cycle has ended, so that the next ID begins a new one."""
        return max(self.wall, self.counter.shown) >= self.counter.cycle_end

    @property
    def first(self) -> int:
        return segment.first_number(self.spec, self.counter.step, self.counter.node_offset)

    @property
    def position(self) -> int | None:
        """The last number reserved in the stored cycle, or None."""
        last = self.counter.bound - self.counter.step
        return last if last >= self.first else None

    @cached_property
    def next(self) -> int:
        """The next number that will be reserved."""
        try:
            return operations.standing(self.counter, clock=lambda: self.now).bound
        except IdError:
            return self.counter.bound

    @property
    def capacity(self) -> int:
        return capacity(self.spec, self.counter.step, self.counter.node_offset)

    @property
    def left(self) -> int:
        """The count of this node's unreserved numbers in the current cycle."""
        return min(self.capacity, max(0, (self.spec.max_counter - self.next) // self.counter.step + 1))

    @property
    def used(self) -> float:
        """The used share of the current cycle, 0 to 1."""
        return 1 - self.left / self.capacity if self.capacity else 1.0

    @property
    def ahead(self) -> int:
        """Seconds by which the cycle or the shown time is in the future; 0 if neither is."""
        return max(0, self.counter.cycle_start - self.wall, self.counter.shown - self.wall)

    @cached_property
    def forecast(self) -> Forecast:
        return forecast_of(self.counter)

    @property
    def runs_out_at(self) -> float | None:
        """The time at which the numbers end before their cycle does, in epoch seconds."""
        return None if self.forecast.wait is None else self.now + self.forecast.wait

    # --- as HTML ---------------------------------------------------------------------------------------------------

    @property
    def head_room(self) -> SafeString:
        """A bar for the share left, with the count next to it."""
        return free_space_bar(1 - self.used, _("%(count)s left") % {"count": number(self.left)}, low=0.1, high=0.25)

    @property
    def outlook(self) -> SafeString:
        """The forecast in words; the exact time is the element's title."""
        forecast = self.forecast
        pace = _("%(count)s numbers per second") % {"count": _pace(forecast.pace)} if forecast.pace else ""
        match forecast.outlook:
            case Outlook.TURNED:
                return format_html(
                    '<span class="resty-quiet" title="{}">{}</span>',
                    _("The next ID begins a new cycle."),
                    _("restarts"),
                )
            case Outlook.USED_UP:
                return format_html('<strong class="resty-alarm">{}</strong>', _("used up"))
            case Outlook.UNKNOWN:
                return format_html('<span class="resty-quiet">{}</span>', _("not known yet"))
            case Outlook.LASTS:
                if self.counter.endless:
                    return format_html('<span title="{}">{}</span>', pace, _("in more than 100 years"))
                title = _("The cycle ends %(time)s") % {"time": self.clock(self.counter.cycle_end)}
                return format_html('<span title="{}">{}</span>', f"{title}; {pace}", _("lasts"))
        wait = forecast.wait or 0.0
        at = datetime.fromtimestamp(self.now + wait, self.zone)
        return format_html(
            '<time class="{}" datetime="{}" title="{}">{}</time>',
            "resty-alarm" if wait < conf.ids.runs_out_warning else "",
            at.isoformat(timespec="seconds"),
            f"{date_time(at.replace(tzinfo=None))} {at:%Z}; {pace}",
            _("in %(time)s") % {"time": duration(wait)},
        )

    @property
    def age(self) -> SafeString:
        """The time since the row was written; the exact time is the element's title."""
        at = self.counter.updated_at.astimezone(self.zone)
        if self.now - at.timestamp() < 60:
            text = _("just now")
        else:
            text = _("%(time)s ago") % {"time": duration(self.now - at.timestamp())}
        return format_html(
            '<time datetime="{}" title="{}">{}</time>',
            at.isoformat(timespec="seconds"),
            f"{date_time(at.replace(tzinfo=None))} {at:%Z}",
            text,
        )

    @property
    def cycle(self) -> SafeString:
        """The stored cycle: as dates if it begins and ends at midnight, else with times."""
        counter = self.counter
        if counter.endless:
            return format_html('<span class="resty-quiet">{}</span>', _("never resets"))
        end = self.clock(counter.cycle_end)
        if counter.cycle_start < FIRST:
            return format_html(_("until {}"), end)
        start = self.clock(counter.cycle_start)
        if counter.cycle_start % DAY_SECONDS == 0 == counter.cycle_end % DAY_SECONDS:
            last = date(datetime_of(counter.cycle_end) - timedelta(days=1))
            is_one_day = counter.cycle_end - counter.cycle_start == DAY_SECONDS
            text = last if is_one_day else f"{date(datetime_of(counter.cycle_start))} – {last}"
        else:
            text = f"{start} – {end}"
        return format_html(
            '<span title="{}">{}</span>',
            _("%(start)s to %(end)s, %(zone)s") % {"start": start, "end": end, "zone": self.zone},
            text,
        )

    @staticmethod
    def clock(wall: int) -> str:
        """Return a wall second as date and time; a dash if it cannot be shown."""
        try:
            return date_time(datetime_of(wall))
        except BadRule:
            return NONE


def _pace(pace: float) -> str:
    """Return numbers per second with three digits."""
    text = f"{pace:.3g}"
    return text if "e" in text else str(number_format(text, force_grouping=True))
