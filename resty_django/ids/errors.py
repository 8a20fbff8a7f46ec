"""Errors of the ID service: one class per cause, each with a stable code.

`code` is the word that HTTP and Python callers may rely on; `udp_code` is the number in a UDP reply. The causes
that id_server knew all carry -1, as its clients expect; the new ones have their own numbers.
"""

from __future__ import annotations

from typing import ClassVar


class IdError(Exception):
    """Base of all errors of the ID service; the text is a sentence that says what to change."""

    code: ClassVar[str] = "system_error"
    udp_code: ClassVar[int] = -1
    http_status: ClassVar[int] = 500


class BadRequest(IdError):
    """A field of a request is missing or has the wrong type."""

    code = "bad_request"
    http_status = 400


class UnknownRule(IdError):
    """No enabled rule has this name.

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
    code = "bad_salt"
    http_status = 400


class BadCount(IdError):
    """`count` is not within 1 and the bound set for one request."""

    code = "bad_count"
    http_status = 400


class BadRule(IdError):
    """The rule itself is wrong: it does not compile, or its maximum does not fit.

    `position` is the index of the first wrong character in the rule's source, where one can be named.
    """

    code = "bad_rule"

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class RuleFailed(IdError):
    """A Lua or Python rule raised an error, ran out of its time or memory, or made no usable text."""

    code = "rule_failed"


class Exhausted(IdError):
    """All numbers of the cycle are given out. `until` is when the next cycle begins (epoch seconds), None if never."""

    code = "exhausted"
    udp_code = -2
    http_status = 409

    def __init__(self, message: str, until: float | None = None) -> None:
        super().__init__(message)
        self.until = until


class Unavailable(IdError):
    """No number is reserved and the database could not be asked for more; try again shortly.

    `explained`: the text names the cause, and what to do about it.
    """

    code = "unavailable"
    udp_code = -3
    http_status = 503

    def __init__(self, message: str, *, explained: bool = False) -> None:
        super().__init__(message)
        self.explained = explained


class TooManyNames(IdError):
    """The rule has as many application names as it allows."""

    code = "too_many_names"
    udp_code = -4
    http_status = 409


class TooFast(IdError):
    """New names, or the requests of one source, come faster than allowed."""

    code = "rate_limited"
    udp_code = -5
    http_status = 429


class StepChanged(IdError):
    """The site's step is not the one that the counter was made with, and the change was not confirmed."""

    code = "step_changed"
    udp_code = -6
    http_status = 409


class NeedsTransaction(IdError):
    """A gapless rule was asked outside `transaction.atomic()`, or over HTTP or UDP."""

    code = "needs_transaction"
    udp_code = -7
    http_status = 409


class NotExist(IdError):
    """Nothing to monitor: no counter of that rule and name."""

    code = "not_exist"
    http_status = 404
