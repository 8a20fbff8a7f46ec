"""A model field with an ID of a rule.

class Order(models.Model):
    number = IdField(rule="order", app="shop")

Order.objects.create().number    # "O261121000042"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.utils.translation import gettext_lazy as _

from resty_django.database.fields import ExactCharField

from . import declared
from .engine.rule import MAX_ID_LENGTH, check_name, compile_rule
from .errors import IdError
from .models import IdRule
from .service import service


class IdField(ExactCharField):
    """A column with the next ID of a rule, taken at the first save; a value that is already set is kept.

    `app`: the application name, or a function that returns it for a model instance. By default the column is unique,
    not editable, and as wide as the longest ID of any rule. `save` raises the errors of `next_id`.
    """

    description = _("ID of a rule")
    empty_strings_allowed = False  # a fixture without a value must fail, not store an empty ID
    non_db_attrs = (*ExactCharField.non_db_attrs, "rule", "app")

    def __init__(self, *args: Any, rule: str = "", app: str | Callable[[Any], str] = "", **kwargs: Any) -> None:
        self.rule, self.app = rule, app
        defaults = {"max_length": MAX_ID_LENGTH, "unique": True, "editable": False, "blank": True}
        super().__init__(*args, **{**defaults, **kwargs})

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        options = {"unique": self._unique, "editable": self.editable, "blank": self.blank}  # type: ignore[attr-defined]
        return name, path, args, {**kwargs, **options, "rule": self.rule, "app": self.app}

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        value = super().pre_save(model_instance, add)
        # An object that may be new is first saved by an UPDATE; if that takes an ID, it replaces the ID of an old row.
        if value in (None, "") and (add or not model_instance._state.adding):
            value = self.get_pk_value_on_save(model_instance)
            setattr(model_instance, self.attname, value)
        return value

    def get_pk_value_on_save(self, instance: models.Model) -> str:
        """Return the next ID. Django calls this for a primary key without a value, before `pre_save`."""
        app = self.app(instance) if callable(self.app) else self.app
        return service().next_many(self.rule, 1, app, for_row=True)[0]

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        fault = self._fault()
        return [*super().check(**kwargs), *([Error(fault, obj=self, id="resty_ids.E002")] if fault else [])]

    def _fault(self) -> str:
        """Return what is wrong with the options and what to do, or "". Only declared rules are known here."""
        if not self.rule:
            return 'An IdField needs a rule. Name one, as in IdField(rule="order").'
        if self.null:
            return "An IdField is never empty. Remove null=True."
        app = "" if callable(self.app) else self.app
        try:
            check_name(app)
            fields = declared.rules().get(self.rule)
            if fields is None:
                return ""
            compiled = compile_rule(IdRule(**fields).spec())
            compiled.check_salt("")
            length = len(compiled.shape(0, app).render(compiled.spec.max_counter, ""))
        except IdError as error:
            return f"Rule {self.rule!r} does not suit an IdField: {error}"
        except ImproperlyConfigured:
            return ""  # the settings check reports it
        if self.max_length is not None and length > self.max_length:
            return f"IDs of rule {self.rule!r} have {length} characters. Set max_length to {length} or more."
        return ""
