"""System checks of the alerts.

| id | meaning |
|---|---|
| `resty_django.E006` | a rule of the setting RULES cannot be used |
| `resty_django.E007` | the function of the setting CALL cannot be imported |
| `resty_django.W006` | there are rules, but nobody receives the alerts |
"""

from __future__ import annotations

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from resty_django.conf import conf
from resty_django.conf.schema import see_key

from .delivery import channels
from .rules import BadRule, parse_rules


def problems() -> list[CheckMessage]:
    """Return what is wrong with the rules and the recipients."""
    try:
        config = conf.alerts
    except ImproperlyConfigured:
        return []  # the settings check reports it
    messages: list[CheckMessage] = []
    try:
        parse_rules(config.rules)
    except BadRule as error:
        text = f'RESTY_DJANGO["ALERTS"]["RULES"]: {error}'
        messages.append(Error(text, hint=see_key(("ALERTS", "RULES")).strip() or None, id="resty_django.E006"))
    if config.call is not None:
        try:
            if not callable(import_string(config.call)):
                raise ImportError(f"{config.call} is not callable")
        except ImportError as error:
            text = f'RESTY_DJANGO["ALERTS"]["CALL"] cannot be used: {error}.'
            messages.append(Error(text, hint=see_key(("ALERTS", "CALL")).strip() or None, id="resty_django.E007"))
    if config.rules and not channels():
        messages.append(
            Warning(
                'RESTY_DJANGO["ALERTS"] has rules, but nobody receives the alerts.',
                hint=f"Set ADMINS, or TO or CALL in ALERTS.{see_key(('ALERTS', 'TO'))}",
                id="resty_django.W006",
            )
        )
    return messages
