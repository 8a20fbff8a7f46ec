"""Errors of the ID service: one class per cause, each with a stable code.

`code` is the stable word for HTTP and Python callers; `udp_code` is the number in a UDP reply. All causes that exist in
id_server have -1, as its clients expect; the new ones have separate numbers.
"""

from __future__ import annotations

from typing import ClassVar


class IdError(Exception):
    """Base of all errors of the ID service. The message says what is wrong and what to do."""

    code: ClassVar[str] = "system_error"
    udp_code: ClassVar[int] = -1
    http_status: ClassVar[int] = 500


class BadRequest(IdError):
    """A field of a request is missing or has the wrong type."""

    code = "bad_request"
    http_status = 400


class UnknownRule(IdError):
    """No enabled rule has this name. A disabled rule counts as unknown.

    `message` is the text without the hint, which may contain the name of another rule: replies over HTTP and UDP show
    the message alone.
    """

    code = "unknown_rule"
    http_status = 404

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())
        self.message = message


class BadName(IdError):
    """The application name has a forbidden character or is too long."""

    code = "bad_name"
    http_status = 400


class BadSalt(IdError):
    """The salt has characters other than letters and digits, or the wrong length."""

    code = "bad_salt"
    http_status = 400


class BadCount(IdError):
    """`count` is not between 1 and `MAX_COUNT`, or the IDs do not fit into a datagram."""

    code = "bad_count"
    http_status = 400


class BadRule(IdError):
    """The rule itself is not valid: it does not compile, or its maximum does not fit.

    `position` is the index of the first wrong character in the rule's source, if known.
    """

    code = "bad_rule"

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class RuleFailed(IdError):
    """A Lua or Python rule raised an error, exceeded its time or memory limit, or returned no valid text."""

    code = "rule_failed"


class Exhausted(IdError):
    """All numbers of the cycle are used.
    `until` is the start of the next cycle in epoch seconds, None if the rule never resets, and in the UDP client.
    """

    code = "exhausted"
    udp_code = -2
    http_status = 409

    def __init__(self, message: str, until: float | None = None) -> None:
        super().__init__(message)
        self.until = until


class Unavailable(IdError):
    """No reserved numbers are left, and the database did not answer. Try again shortly, or fix what the message names.

    `explained`: whether the message names the cause and what to do about it.
    """

    code = "unavailable"
    udp_code = -3
    http_status = 503

    def __init__(self, message: str, *, explained: bool = False) -> None:
        super().__init__(message)
        self.explained = explained


class TooManyNames(IdError):
    """The rule already has `max_names` application names."""

    code = "too_many_names"
    udp_code = -4
    http_status = 409


class TooFast(IdError):
    """New application names arrive faster than `NEW_NAMES_PER_SECOND`, or one source sends too many requests."""

    code = "rate_limited"
    udp_code = -5
    http_status = 429


class StepChanged(IdError):
    """The counter was created with another step than the site's, and the change was not confirmed."""

    code = "step_changed"
    udp_code = -6
    http_status = 409


class NeedsTransaction(IdError):
    """An ID of a gapless rule was requested outside `transaction.atomic()`, or over HTTP or UDP."""

    code = "needs_transaction"
    udp_code = -7
    http_status = 409


class NotExist(IdError):
    """`monitor`: the counter does not exist."""

    code = "not_exist"
    http_status = 404
