"""Models: rules and counters."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from resty_django.conf import conf
from resty_django.database.fields import ExactCharField
from resty_django.database.versioned import Versioned

from .engine.cycle import Reset
from .engine.rule import MAX_NAME_LENGTH, MAX_NUMBER, MAX_SALT, RuleSpec, check_name, compile_rule
from .engine.wall_clock import END
from .errors import BadName, BadRule


def new_scramble_key() -> str:
    """Return a new secret of 16 bytes, in hex."""
    return secrets.token_hex(16)


if TYPE_CHECKING:
    _BigIntegerField = models.BigIntegerField[int | None, int | None]
    _PositiveIntegerField = models.PositiveIntegerField[int, int]
else:
    _BigIntegerField = models.BigIntegerField
    _PositiveIntegerField = models.PositiveIntegerField


RULE_FIELDS: Final = (
    "name",
    "description",
    "kind",
    "source",
    "enabled",
    "min_counter",
    "max_counter",
    "reset_seconds",
    "reset_calendar",
    "timezone",
    "segment_size",
    "gapless",
    "salt_length",
    "fixed_length",
    "max_names",
)
"""The editable fields of a rule, over HTTP and in IDS["RULES"]."""


class AnchorField(_BigIntegerField):
    """The minimum with which a rule was created, in any way; it never changes afterwards.

    Django calls `pre_save` of a field on every insert and update of a model instance, including `bulk_create` and the
    historical models in migrations, which do not have our `save`. Raw SQL may omit the column: it is then NULL until
    `fix_anchors` runs.
    """

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        if not add:
            return F(self.attname)
        anchor: object = vars(model_instance)["min_counter"]
        setattr(model_instance, self.attname, anchor)
        return anchor


class NameCountField(_PositiveIntegerField):
    """A count that the store keeps up to date in the row; saving a rule, even an old copy, does not change it."""

    def pre_save(self, model_instance: models.Model, add: bool) -> object:
        return 0 if add else F(self.attname)


class IdRule(Versioned):
    """A rule: the format, range and reset period of its IDs."""

    class Kind(models.TextChoices):
        TEMPLATE = "template", _("Template")
        LUA = "lua", _("Lua script")
        PYTHON = "python", _("Python class")

    class Calendar(models.TextChoices):
        MONTH = "month", _("each calendar month")
        YEAR = "year", _("each calendar year")

    name = ExactCharField(
        _("name"),
        max_length=MAX_NAME_LENGTH,
        unique=True,
        help_text=_("The name that callers pass, for example order."),
    )
    description = models.CharField(_("description"), max_length=200, blank=True)
    kind = models.CharField(_("kind"), max_length=8, choices=Kind, default=Kind.TEMPLATE)
    source = models.TextField(
        _("source"),
        help_text=_(
            "The template, for example O{now:%y%m%d}{counter:06d}; the text of a Lua script; or the dotted "
            "path of a Python class that the settings allow."
        ),
    )
    enabled = models.BooleanField(
        _("enabled"), default=True, help_text=_("A disabled rule behaves like an unknown one.")
    )
    min_counter = models.BigIntegerField(_("minimum"), default=0)
    max_counter = models.BigIntegerField(_("maximum"), default=999_999)
    reset_seconds = models.BigIntegerField(
        _("reset every (seconds)"),
        default=0,
        help_text=_("86400: each day, 604800: each Monday, 0: never. In the rule's time zone."),
    )
    reset_calendar = models.CharField(_("or reset"), max_length=5, choices=Calendar, blank=True, default="")
    timezone = models.CharField(
        _("timezone"), max_length=64, blank=True, default="", help_text=_("Empty: the site's TIME_ZONE.")
    )
    segment_size = models.PositiveIntegerField(
        _("segment size"),
        default=1000,
        help_text=_("Numbers that a process reserves at a time. A killed process leaves a gap of up to that size."),
    )
    gapless = models.BooleanField(
        _("gapless"),
        default=False,
        help_text=_(
            "No gaps, for example for invoices: numbers are taken in the caller's transaction, from Python only."
        ),
    )
    salt_length = models.PositiveSmallIntegerField(
        _("salt length"),
        null=True,
        blank=True,
        help_text=_("Lua and Python rules: the exact length of the salt. Empty: any length up to 32."),
    )
    fixed_length = models.BooleanField(
        _("fixed length"),
        default=True,
        help_text=_("Lua and Python rules: refuse the rule if its IDs would differ in length."),
    )
    max_names = models.PositiveIntegerField(
        _("max names"), default=10_000, help_text=_("Maximum number of application names with a counter.")
    )
    name_count = NameCountField(default=0, db_default=0, editable=False)
    scramble_key = models.CharField(_("scramble key"), max_length=128, default=new_scramble_key, editable=False)
    anchor = AnchorField(null=True, default=None, editable=False)

    class Meta:
        verbose_name = _("ID rule")
        verbose_name_plural = _("ID rules")
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(min_counter__gte=0, min_counter__lt=F("max_counter"), max_counter__lte=MAX_NUMBER),
                name="resty_ids_rule_range",
            ),
            models.CheckConstraint(condition=Q(reset_seconds__gte=0), name="resty_ids_rule_reset"),
            models.CheckConstraint(
                condition=Q(reset_calendar="") | Q(reset_seconds=0), name="resty_ids_rule_one_reset"
            ),
            models.CheckConstraint(condition=Q(segment_size__gte=1), name="resty_ids_rule_segment"),
        ]
        permissions: ClassVar = [
            ("issue_id", "Can issue IDs"),
            ("change_lua_rule", "Can write Lua rules"),
            ("change_python_rule", "Can choose Python rules"),
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save with a new version, so that running processes reload the rule."""
        if not self._state.adding:
            fix_anchors(kwargs.get("using") or self._state.db, self.pk)
        super().save(*args, **kwargs)

    def spec(self) -> RuleSpec:
        """Return the rule as a `RuleSpec`. Raise BadRule if its scramble key is not hexadecimal."""
        ids = conf.ids
        try:
            scramble_key = bytes.fromhex(self.scramble_key)
        except ValueError:
            raise BadRule(gettext("The scramble_key must be a string of hexadecimal digits.")) from None
        return RuleSpec(
            name=self.name,
            source=self.source,
            kind=self.kind,
            min_counter=self.min_counter,
            max_counter=self.max_counter,
            anchor=self.min_counter if self._state.adding or self.anchor is None else self.anchor,
            reset=Reset(self.reset_seconds, self.reset_calendar),
            timezone=self.timezone or settings.TIME_ZONE,
            segment_size=self.segment_size,
            salt_length=self.salt_length,
            fixed_length=self.fixed_length,
            scramble_key=scramble_key,
            node=ids.node,
            gapless=self.gapless,
            python_rules=ids.python_rules,
            lua_milliseconds=ids.lua.milliseconds,
            lua_memory=ids.lua.memory,
        )

    def clean(self) -> None:
        """Raise ValidationError for the field to change if the rule is not valid."""
        try:
            check_name(self.name, "name")
        except BadName as error:
            raise ValidationError({"name": str(error)}) from error
        if isinstance(self.salt_length, int) and self.salt_length > MAX_SALT:
            text = gettext("A salt has at most %(max)s characters.")
            raise ValidationError({"salt_length": text % {"max": MAX_SALT}})
        numbers = (self.min_counter, self.max_counter, self.reset_seconds, self.segment_size, self.max_names)
        if not all(isinstance(number, int) for number in numbers) or self.reset_calendar not in ("", *self.Calendar):
            return  # the fields' validators report it
        if self.reset_seconds and self.reset_calendar:
            raise ValidationError({"reset_calendar": gettext("Both reset fields are set. Choose one of the two.")})
        least = {"min_counter": 0, "reset_seconds": 0, "segment_size": 1, "max_names": 1}
        wrong = {
            name: gettext("This must be at least %(min)s.") % {"min": number}
            for name, number in {**least, "max_counter": max(self.min_counter, 0) + 1}.items()
            if getattr(self, name) < number
        }
        if self.max_counter > MAX_NUMBER:
            wrong["max_counter"] = gettext("This must be at most %(max)s.") % {"max": MAX_NUMBER}
        if wrong:
            raise ValidationError(wrong)
        try:
            compile_rule(self.spec())
        except BadRule as error:
            raise ValidationError({_field_of(error): _with_place(error, self.source)}) from error

    def risks(self, old: IdRule) -> list[str]:
        """Return the reasons why this edit of a rule in use could cause an earlier ID to be issued again."""
        if not self.counters.exists():
            return []
        risks = []
        if (self.kind, self.source) != (old.kind, old.source):
            risks.append("The text of IDs changes: make sure that no new ID can equal an earlier one.")
        if self.name != old.name:
            risks.append("The name changes: requests for the old name are refused, and {rule} shows the new one.")
        if "scramble" in old.source and (self.min_counter, self.max_counter) != (old.min_counter, old.max_counter):
            risks.append(
                "The range of a scrambled rule changes, and with it the mapping: earlier IDs can be issued again."
            )
        if (self.reset_seconds, self.reset_calendar) != (old.reset_seconds, old.reset_calendar):
            risks.append("The reset changes: it takes effect when the current cycle has ended.")
        if (self.timezone or settings.TIME_ZONE) != (old.timezone or settings.TIME_ZONE):
            risks.append("The time zone changes: shown times jump, though never backwards.")
        return risks


def fix_anchors(using: str | None, *keys: int) -> None:
    """Set the anchor of rows created by raw SQL or a fixture without one to their minimum: rows `keys`, or all rows.

    Runs before a rule is used or edited for the first time, so that no later edit of the minimum moves the anchor.
    """
    rows = IdRule.objects.using(using).filter(anchor=None)
    (rows.filter(pk__in=keys) if keys else rows).update(anchor=F("min_counter"))


class IdCounter(models.Model):
    """A counter: how many of a rule's numbers are reserved for one application name and node.

    `bound` is the next unreserved number. `cycle_start` and `cycle_end` are wall seconds (local clock time in the
    rule's time zone, as seconds since 1970), and so is `shown`, the highest time that an ID is known to show. Since
    `window_began`, processes have reported `window_issued` issued numbers, from which the forecast has its pace.
    """

    rule = models.ForeignKey(IdRule, models.CASCADE, related_name="counters", verbose_name=_("rule"))
    app_name = ExactCharField(_("app name"), max_length=MAX_NAME_LENGTH, blank=True)
    node_offset = models.PositiveIntegerField(_("node offset"), default=0)
    step = models.PositiveIntegerField(_("step"), default=1)
    bound = models.BigIntegerField(
        _("bound"),
    )
    cycle_start = models.BigIntegerField(
        _("cycle start"),
    )
    cycle_end = models.BigIntegerField(
        _("cycle end"),
    )
    shown = models.BigIntegerField(
        _("shown"),
    )
    cycle_began = models.DateTimeField(
        _("cycle began"), help_text=_("When this cycle was entered, by the clock of the database client.")
    )
    cycle_first = models.BigIntegerField(_("cycle first"), help_text=_("The bound when this cycle was entered."))
    window_began = models.DateTimeField(null=True, editable=False)
    window_issued = models.BigIntegerField(default=0, db_default=0, editable=False)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True, db_index=True)

    class Meta:
        verbose_name = _("ID counter")
        verbose_name_plural = _("ID counters")
        ordering: ClassVar = ["rule__name", "app_name", "node_offset"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["rule", "app_name", "node_offset"], name="resty_ids_counter_once"),
            models.CheckConstraint(condition=Q(cycle_start__lt=F("cycle_end")), name="resty_ids_counter_cycle"),
            models.CheckConstraint(condition=Q(node_offset__lt=F("step")), name="resty_ids_counter_node"),
        ]
        permissions: ClassVar = [
            ("raise_idcounter", "Can raise a counter"),
            ("lower_idcounter", "Can lower a counter"),
            ("confirm_step", "Can confirm a changed step"),
        ]

    def __str__(self) -> str:
        name = f"{self.rule.name}/{self.app_name}"
        if self.step == 1:
            return name
        return gettext("%(name)s (node %(node)s of %(count)s)") % {
            "name": name,
            "node": self.node_offset,
            "count": self.step,
        }

    @property
    def endless(self) -> bool:
        """Whether the cycle never ends, or after the year 9998."""
        return self.cycle_end >= END


def _field_of(error: BadRule) -> str:
    text = str(error)
    if "time zone" in text:
        return "timezone"
    return "max_counter" if error.position is None and text.startswith("IDs have") else "source"


def _with_place(error: BadRule, source: str) -> str:
    if error.position is None:
        return str(error)
    return f"At character {error.position + 1} ({source[error.position :][:12]!r}): {error}"
