"""Times in the database, as epoch seconds."""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings


def to_db(timestamp: float) -> datetime:
    """Return epoch seconds as the database stores them: UTC, without a time zone if the site has `USE_TZ = False`."""
    moment = datetime.fromtimestamp(timestamp, UTC)
    return moment if settings.USE_TZ else moment.replace(tzinfo=None)


def from_db(moment: datetime) -> float:
    """Return a time from the database as epoch seconds."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
