"""Operations of the admin: on one object, on selected rows of a list, or on the entire list.

`PageAdmin.operation_view` is the page of an operation on one object, `BulkAdmin.bulk_view` of one on many objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from django import forms
from django.db import models

from resty_django.redis.errors import StoreError
from resty_django.shdict.errors import Unavailable
from resty_django.text import one_line, printable

LONGEST_VALUE: Final = 500
"""Maximum length of a value in the history, in characters."""

Target = TypeVar("Target")


class Refused(Exception):
    """An operation is not done; the text explains why."""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """A change of an object.

    `entry`: of the object's history; `others`: of other objects' history. `message`: for a user who changed only this
    object; by default the entry. `gone`: whether the object no longer exists.
    """

    entry: str
    message: Any = ""
    gone: bool = False
    others: Sequence[tuple[models.Model, str]] = ()


def changed_text(label: object, old: Any, new: Any) -> str:
    """Return a changed value as all entries of the history name it: "Rate: 10/s → 20/s"."""
    return f"{label}: {_value_text(old)} → {_value_text(new)}"


def _value_text(value: Any) -> str:
    return "empty" if value in (None, "") else one_line(value, LONGEST_VALUE)


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Changes by the names of the changed objects, and errors."""

    changes: dict[str, OperationResult] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Operation(Generic[Target]):
    """An operation on an object.

    - `run`: changes the object, given the form's cleaned data. May raise `Refused` or an error in `refusals` of the
      admin. `partial`: such an error may leave a part done, so it is logged.
    - `run_many`: does the same for objects by name; by default one by one.
    - `label`: in lists; `title` and `button` of the operation's page are the label by default.
    - `done`: begins the message about many objects. Lists offer the operation only if it has this text.
    - `effect`: says what happens. `explain`: returns more context for the page, such as `facts`; may raise like `run`.
    - `form`: takes the data, and the object or None for several objects. The pages set its attribute `user`.
    - `keyed`: whether `form` and `explain` take the token of a key as another argument: `k` in the URL, or "".
    - `applies`: whether the state of one of several objects allows the operation.
    """

    name: str
    label: Any
    permission: str
    run: Callable[[Target, dict[str, Any]], OperationResult]
    effect: Any = ""
    done: Any = ""
    applies: Callable[[Target], bool] = lambda target: True
    form: Callable[..., forms.Form] = lambda data, target: forms.Form(data)
    explain: Callable[..., Mapping[str, Any]] | None = None
    keyed: bool = False
    title: Any = ""
    button: Any = ""
    danger: bool = False
    partial: bool = False
    template: str = "admin/resty_django/action.html"
    run_many: Callable[[Mapping[str, Target], dict[str, Any]], BulkResult] | None = None

    def change(self, targets: Mapping[str, Target], data: dict[str, Any], *refusals: type[Exception]) -> BulkResult:
        """Change several objects; a store that is down ends it, and what is done until then is in the outcome."""
        if self.run_many is not None:
            return self.run_many(targets, data)
        outcome = BulkResult()
        for name, target in targets.items():
            try:
                outcome.changes[name] = self.run(target, data)
            except (StoreError, Unavailable) as error:
                outcome.errors.append(str(error))
                break
            except refusals as error:
                outcome.errors.append(f"{printable(name, 60)}: {error}")
        return outcome
