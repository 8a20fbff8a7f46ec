"""Sending alerts: by mail, and by the function that the setting CALL names."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import Final

from django.conf import settings
from django.core.mail import mail_admins, send_mail
from django.utils.formats import number_format
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from resty_django import concurrency
from resty_django.conf import conf
from resty_django.health import described
from resty_django.text import logger, one_line

from . import store
from .incidents import Channel, Incident, Message, Notice, claim, finish

log = logger("resty_django.alerts")

SECONDS: Final = 15.0
"""Maximum seconds that an evaluation waits for a mail server. The attempt itself continues in its thread."""
MOST_MESSAGES: Final = 20
"""Maximum number of messages that are sent after one evaluation."""
CALL: Final = "alerts"
"""Identifies the attempts of this process, of which one runs at a time."""
LONGEST_TITLE: Final = 150


def channels() -> list[Channel]:
    """Return the ways by which alerts are sent."""
    config = conf.alerts
    mail = bool(settings.ADMINS) if config.to is None else bool(config.to)
    return [*(["mail"] if mail else []), *(["call"] if config.call else [])]  # type: ignore[list-item]


def deliver() -> list[str]:
    """Send the messages that are due, each by one process only, and return the errors. Raise `SharedDictError`.

    A message that cannot be sent stays, and is tried again after a pause.
    """
    errors: list[str] = []
    for _attempt in range(MOST_MESSAGES):
        late = concurrency.late_workers.get(CALL)
        if late is not None and late.thread.is_alive():
            errors.append(_("An earlier attempt has not finished."))
            break
        message = store.change(lambda state: claim(state, time.time()))
        if message is None:
            break
        (reply,) = concurrency.gather([concurrency.Call(CALL, partial(_send, message))], SECONDS)
        error = reply.error or reply.value
        if error:
            errors.append(error)
        if reply.error:  # it hangs, or the outcome could not be noted
            break
    return errors


def _send(message: Message) -> str:
    """Send a message, and note the outcome even if nobody waits for it any more. Return the error."""
    error = ""
    try:
        if message.channel == "mail":
            send_notices(message.notices)
        else:
            import_string(conf.alerts.call or "")(message.notices[0])
    except Exception as failure:
        error = described(failure)
        log.error("An alert could not be sent and will be retried: %s", one_line(error, 500))
    _finish(message, error)
    return error


def _finish(message: Message, error: str) -> None:
    store.change(lambda state: (finish(state, message.id, error, time.time()), None))


def send_notices(notices: tuple[Notice, ...]) -> None:
    """Send one mail about the notices."""
    subject = title_of(notices[0])
    if len(notices) > 1:
        subject = _("%(first)s, and %(count)d more") % {"first": subject, "count": len(notices) - 1}
    text = "\n\n".join(map(text_of, notices)) + "\n"
    recipients = conf.alerts.to
    if recipients is None:
        mail_admins(subject, text)
    else:
        send_mail(f"{settings.EMAIL_SUBJECT_PREFIX}{subject}", text, None, list(recipients))


def title_of(notice: Notice) -> str:
    """Return the notice in one line: "Alert: Queue latency: mail"."""
    state = _("Alert") if notice.state == "firing" else _("Resolved")
    return one_line(": ".join(filter(None, [state, notice.title, notice.subject])), LONGEST_TITLE)


def text_of(notice: Notice) -> str:
    """Return the notice as lines of text."""
    value = _("unknown") if notice.value is None else amount(notice.value, notice.unit)
    lines = [
        title_of(notice),
        _("Value: %(value)s (alert: %(threshold)s)") % {"value": value, "threshold": condition(notice)},
        _("Since: %(time)s") % {"time": _time(notice.since)},
    ]
    if notice.state == "resolved":
        lines.append(_("Until: %(time)s") % {"time": _time(notice.at)})
    return "\n".join([*lines, _("Rule: %(name)s") % {"name": one_line(notice.rule, LONGEST_TITLE)}])


def condition(incident: Notice | Incident) -> str:
    """Return the condition of an alert: "above 300 s"."""
    text = _("above %(limit)s") if incident.is_above else _("below %(limit)s")
    return text % {"limit": amount(incident.threshold, incident.unit)}


def amount(value: float, unit: str) -> str:
    """Return a value with its unit: "300 s", "9.5 %", "12 per minute"."""
    if unit == "share":
        return f"{_localized(100 * value)} %"
    number = _localized(value)
    if unit == "/min":
        return _("%(number)s per minute") % {"number": number}
    return f"{number} {pgettext('unit of time', 's')}" if unit == "s" else number


def _localized(value: float) -> str:
    return str(number_format(f"{value:.1f}".removesuffix(".0"), force_grouping=True))


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
