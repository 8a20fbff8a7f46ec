"""Operations of the admin: on one object, on selected rows of a list, or on the entire list.

    def pause(counts: QueueCounts, data: dict[str, Any]) -> OperationResult:
        client.queues[counts.name].pause(reason=data["reason"])
        return OperationResult("Paused.", "The queue is paused.")

    PAUSE = Operation("pause", "Pause", "pause_queue", pause, "Workers receive no jobs from the queue.")

`PageAdmin.operation_view` is the page of an operation on one object: it checks the permission, shows the form, runs the
operation on POST and adds the entry to the history. `BulkAdmin.bulk_view` does the same for many objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from django import forms
from django.db import models
from django.utils.functional import Promise
from django.utils.translation import override

from resty_django.redis.errors import StoreError
from resty_django.shdict.errors import Unavailable
from resty_django.text import one_line, printable

Target = TypeVar("Target")


class UserForm(forms.Form):
    """The form of an operation that depends on the user. The pages set `user`."""

    user: object = None


class Refused(Exception):
    """An operation was refused; the text explains why."""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of an operation on an object.

    `entry`: of the object's history; `others`: of other objects' history. `message`: for a user who changed only this
    object; by default the entry. `gone`: whether the object no longer exists.
    """

    entry: str
    message: str = ""
    gone: bool = False
    others: Sequence[tuple[models.Model, str]] = ()

    @classmethod
    def of(cls, text: Callable[[], str], *, gone: bool = False) -> OperationResult:
        """Return a result with a text for both: the history has it in English, the user in the active language."""
        with override(None):
            entry = text()
        return cls(entry, text(), gone=gone)


@dataclass(frozen=True, slots=True)
class BulkOperationResult:
    """The results of an operation on several objects, by name, and errors."""

    changes: dict[str, OperationResult] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Operation(Generic[Target]):
    """An operation on an object.

    - `run`: changes the object, given the form's cleaned data. May raise `Refused` or an error in `refusals` of the
      admin. `partial`: such an error may leave the operation half done, so the history records it.
    - `run_many`: changes several objects, by name; the default runs `run` for each.
    - `label`: in lists; `title` and `button` of the operation's page are the label by default.
    - `done`: the beginning of the message about several objects. Lists offer only operations with this text.
    - `effect`: a sentence about the effect.
    - `explain`: returns more context for the page, such as `facts`; may raise like `run`.
    - `form`: takes the data first, as form classes do, and then the object, or None for several objects.
    - `keyed`: whether `form` and `explain` take the token of a key as another argument: `k` in the URL, or "".
    - `applies`: whether the state of one of several objects allows the operation.
    """

    name: str
    label: str | Promise
    permission: str
    run: Callable[[Target, dict[str, Any]], OperationResult]
    effect: str | Promise = ""
    done: str | Promise = ""
    applies: Callable[[Target], bool] = lambda target: True
    form: Callable[..., forms.Form] = lambda data, target: forms.Form(data)
    explain: Callable[..., Mapping[str, object]] | None = None
    keyed: bool = False
    title: str | Promise = ""
    button: str | Promise = ""
    danger: bool = False
    partial: bool = False
    template: str = "admin/resty_django/action.html"
    run_many: Callable[[Mapping[str, Target], dict[str, Any]], BulkOperationResult] | None = None

    def change(
        self, targets: Mapping[str, Target], data: dict[str, Any], *refusals: type[Exception]
    ) -> BulkOperationResult:
        """Change several objects. If a store is down, stop; the result contains what is done until then."""
        if self.run_many is not None:
            return self.run_many(targets, data)
        result = BulkOperationResult()
        for name, target in targets.items():
            try:
                result.changes[name] = self.run(target, data)
            except (StoreError, Unavailable) as error:
                result.errors.append(str(error))
                break
            except refusals as error:
                result.errors.append(f"{printable(name, 60)}: {error}")
        return result


def changed_text(label: object, old: object, new: object) -> str:
    """Return a changed value as all entries of the history name it: "Rate: 10/s → 20/s"."""
    return f"{label}: {_value_text(old)} → {_value_text(new)}"


def _value_text(value: object) -> str:
    return "empty" if value in (None, "") else one_line(value, 500)  # characters
