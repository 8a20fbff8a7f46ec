"""The models of limits: policies, overrides, the used units of quotas, and bans."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, Final, Self

from django.core.exceptions import ValidationError
from django.db import models, router
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from resty_django.database.fields import ExactCharField
from resty_django.database.versioned import Versioned
from resty_django.models import Model, Unmanaged
from resty_django.text import one_line

from .specs import override as overrides
from .specs.lines import LINE_FIELDS, normalized_lines
from .specs.policy import (
    ALGORITHMS,
    MAX_FIELD_CHARS,
    MAX_NAME_CHARS,
    MODES,
    ON_ERROR,
    POLICY_FIELDS,
    PolicySpec,
    describe,
)
from .specs.policy_validation import FIELD_TYPES, find_problems
from .statistics.catalog import MAX_SERIES_CHARS, known_limiters

MAX_TIME_CHARS: Final = 32


class EditableManager(models.Manager[Model]):
    """A manager of rows with natural keys."""

    def newest(self) -> models.QuerySet[Model]:
        """Return the rows of the database that is written, since a replica may be late."""
        return self.using(router.db_for_write(self.model))

    def get_by_natural_key(self, *key: str) -> Model:
        return self.get(**dict(zip(self.model.key_fields, key, strict=True)))  # type: ignore[attr-defined]


class Editable(Versioned):
    """A row that operators edit. Files and fixtures find it by its natural key, the fields in `key_fields`."""

    key_fields: ClassVar[tuple[str, ...]]

    objects: ClassVar[EditableManager[Self]] = EditableManager()

    class Meta:
        abstract = True

    def natural_key(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in self.key_fields)


class LimitPolicy(Editable):
    """A limit that operators can edit while the site runs."""

    key_fields: ClassVar = ("name",)

    name = ExactCharField(
        _("name"), max_length=MAX_NAME_CHARS, unique=True, help_text=_("The name in code and in the statistics.")
    )
    description = models.CharField(_("description"), max_length=200, blank=True)
    algorithm = models.CharField(
        _("algorithm"), max_length=16, choices=list(ALGORITHMS.items()), default="leaky_bucket"
    )
    rate = models.CharField(
        _("rate"),
        max_length=MAX_FIELD_CHARS,
        blank=True,
        help_text=_(
            "The rate of requests, for example 200/s or 30/min. A request must pass all of several rates: "
            "10/s;1000/h. Windows, token bucket: instead of the numbers that it defines."
        ),
    )
    burst = models.FloatField(
        _("burst"),
        null=True,
        blank=True,
        help_text=_("Leaky bucket, concurrency: the number of additional requests that may wait. Empty: none."),
    )
    limit = models.BigIntegerField(
        pgettext_lazy("number", "limit"),
        null=True,
        blank=True,
        help_text=_("Windows without a rate: requests per window. Concurrency: requests at the same time."),
    )
    window = models.CharField(
        _("window"),
        max_length=MAX_TIME_CHARS,
        blank=True,
        help_text=_("Windows without a rate: the length of a window, for example 1h, 10min or 30s."),
    )
    interval = models.CharField(
        _("interval"),
        max_length=MAX_TIME_CHARS,
        blank=True,
        help_text=_("Token bucket: the time between two refills, for example 500ms. Empty: from the rate."),
    )
    capacity = models.BigIntegerField(
        _("capacity"),
        null=True,
        blank=True,
        help_text=_("Token bucket: requests that pass at once when it is full. Empty: the number in the rate."),
    )
    quantum = models.BigIntegerField(
        _("quantum"), null=True, blank=True, help_text=_("Token bucket: tokens per refill. Empty: 1, or from the rate.")
    )
    max_wait = models.CharField(
        _("max wait"),
        max_length=MAX_TIME_CHARS,
        blank=True,
        help_text=_(
            "Token bucket: requests that would wait longer are refused. 0s: no request waits. Empty: the setting "
            "MAX_WAIT."
        ),
    )
    default_delay = models.CharField(
        _("default delay"),
        max_length=MAX_TIME_CHARS,
        blank=True,
        help_text=_("Concurrency: the assumed duration of a request until one was measured. Empty: 1s."),
    )
    lease = models.CharField(
        _("lease"),
        max_length=MAX_TIME_CHARS,
        blank=True,
        help_text=_(
            "Concurrency: the time after which the slot of a killed process is released. It must be longer than "
            "the longest request. Empty: 2min. “none”: slots are only released by the request itself."
        ),
    )
    tiers = models.TextField(
        _("tiers"),
        blank=True,
        help_text=_(
            "One tier per line, with its rate: “pro: 600/m”, or “staff: none” for no limit. Several rates: “pro: "
            "10/s;1000/h”. The setting TIER names the tier of a request. Requests of other tiers have the numbers "
            "above."
        ),
    )
    key = models.CharField(
        _("key"),
        max_length=MAX_FIELD_CHARS,
        default="ip",
        help_text=_("How requests are grouped, for example ip, user or ip+path."),
    )
    path = models.CharField(
        _("path"),
        max_length=MAX_FIELD_CHARS,
        blank=True,
        help_text=_("Requests with this path; * matches any characters: /api/*"),
    )
    route = models.CharField(
        _("route"),
        max_length=MAX_FIELD_CHARS,
        blank=True,
        help_text=_("Requests with this URL name: shop:pay, or shop:*"),
    )
    view = models.CharField(
        _("view"),
        max_length=MAX_FIELD_CHARS,
        blank=True,
        help_text=_("Requests for the view with this dotted name: shop.views.pay, or shop.views.*"),
    )
    methods = models.CharField(
        _("methods"),
        max_length=64,
        blank=True,
        help_text=_("Requests with these methods: GET POST. GET includes HEAD. Empty: all methods."),
    )
    exempt_networks = models.TextField(
        _("exempt networks"),
        blank=True,
        help_text=_("One network or address per line: 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7."),
    )
    exempt_users = models.TextField(
        _("exempt users"),
        blank=True,
        help_text=_("One user per line: the user name, or user:7 with the primary key, as in keys."),
    )
    exempt_groups = models.TextField(
        _("exempt groups"), blank=True, help_text=_("One group per line. Its members are exempt.")
    )
    exempt_paths = models.TextField(
        _("exempt paths"), blank=True, help_text=_("One path per line; * matches any characters: /api/status/*")
    )
    cost = models.PositiveIntegerField(
        _("cost"), default=1, help_text=_("The number of requests that each request counts as.")
    )
    ban = models.CharField(
        _("ban"),
        max_length=MAX_TIME_CHARS,
        blank=True,
        help_text=_(
            "Refuse all requests of a key for this time after refusals, for example 15m. Each further ban is "
            "twice as long. Empty: no bans."
        ),
    )
    ban_after = models.BigIntegerField(
        _("ban after"),
        null=True,
        blank=True,
        help_text=_("The number of refusals, within the time of the ban, that cause it. Empty: 1."),
    )
    mode = models.CharField(_("mode"), max_length=8, choices=list(MODES.items()), default="enforce")
    on_error = models.CharField(
        _("when the store is down"),
        max_length=8,
        blank=True,
        choices=list(ON_ERROR.items()),
        help_text=_("Empty: the setting ON_ERROR."),
    )
    status = models.PositiveSmallIntegerField(
        _("status"), null=True, blank=True, help_text=_("HTTP status of refusals. Empty: the setting STATUS.")
    )
    order = models.IntegerField(
        _("order"), default=0, help_text=_("The order in which the policies for a request decide.")
    )

    class Meta:
        verbose_name = _("limit policy")
        verbose_name_plural = _("limits")
        ordering: ClassVar = ["order", "name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(cost__gte=1), name="resty_limits_policy_cost"),
        ]
        permissions: ClassVar = [
            ("reset_key", "Can reset keys of limits"),
        ]

    def __str__(self) -> str:
        return self.name

    def spec(self) -> PolicySpec:
        """Return the policy as a `PolicySpec`."""
        return PolicySpec(**{name: getattr(self, name) for name in POLICY_FIELDS})

    def clean(self) -> None:
        """Normalize the lines. Raise `ValidationError` for the fields to change if the policy is not valid."""
        for name in LINE_FIELDS:
            setattr(self, name, normalized_lines(name, getattr(self, name)))
        numbers = [getattr(self, name) for name, kind in FIELD_TYPES.items() if kind != "str"]
        if not all(value is None or isinstance(value, int | float) for value in numbers) or self.cost is None:
            return  # the fields' validators report it
        problems = find_problems(self.spec())
        if problems:
            raise ValidationError({name: [text] for name, text in problems.items()})

    def describe(self) -> str:
        """Return the limit in words: "200 requests/s, up to 100 wait, then refused"."""
        spec = self.spec()
        return "not valid" if find_problems(spec) else describe(spec)


class LimitOverride(Editable):
    """Another rate, no limit or a block for one user, address, network or key, in one limit or in all."""

    key_fields: ClassVar = ("kind", "key", "limit")
    limiters: overrides.Limiters = staticmethod(known_limiters)
    """Returns the limiters of `limit`, with which `clean` compares the rate."""

    kind = models.CharField(_("kind"), max_length=8, choices=list(overrides.OVERRIDE_KINDS.items()), default="address")
    key = ExactCharField(
        _("key"),
        max_length=overrides.MAX_KEY_CHARS,
        help_text=_(
            "The ID of a user, an address such as 192.0.2.7, a network such as 192.0.2.0/24, an API key, or a "
            "key as the figures list it."
        ),
    )
    limit = ExactCharField(
        _("limit"),
        max_length=MAX_SERIES_CHARS,
        blank=True,
        default=overrides.ALL_LIMITS,
        help_text=_("The name of the limit in the statistics, for example pay. Empty: all limits."),
    )
    rate = models.CharField(
        _("rate"),
        max_length=overrides.MAX_RATE_CHARS,
        help_text=_(
            "A rate such as 60/m, “none” (no limit) or “blocked”. Concurrency and quotas: a number instead of a rate."
        ),
    )
    starts_at = models.DateTimeField(_("from"), null=True, blank=True, help_text=_("Empty: from now on."))
    ends_at = models.DateTimeField(_("until"), null=True, blank=True, help_text=_("Empty: without an end."))
    reason = models.CharField(_("reason"), max_length=200, blank=True)

    class Meta:
        verbose_name = _("limit override")
        verbose_name_plural = _("overrides")
        ordering: ClassVar = ["kind", "key", "limit"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["kind", "key", "limit"],
                name="resty_limits_override_key",
                violation_error_message="There is already an override of this key and limit. Change that one.",
            ),
        ]

    def __str__(self) -> str:
        return self.spec().title

    def spec(self) -> overrides.OverrideSpec:
        """Return the override as an `OverrideSpec`."""
        return overrides.OverrideSpec(
            **{field.name: getattr(self, field.name) for field in fields(overrides.OverrideSpec)}
        )

    def clean(self) -> None:
        """Raise `ValidationError` for the fields to change if the override is not valid."""
        problems = overrides.find_problems(self.spec(), self.limiters)
        required = {name for name in ("kind", "key", "rate") if not getattr(self, name)}  # the fields report it
        if problems.keys() - required:
            raise ValidationError({name: [text] for name, text in problems.items() if name not in required})


class QuotaUsage(models.Model):
    """The units of a quota that one key has used in one period. Times are in epoch seconds."""

    quota = ExactCharField(_("quota"), max_length=MAX_NAME_CHARS)
    key = ExactCharField(_("key"), max_length=200)  # longer keys are replaced by a hash
    starts_at = models.BigIntegerField(_("start"))
    ends_at = models.BigIntegerField(_("end"))
    used = models.BigIntegerField(_("used"), default=0, help_text=_("Units used, and units reserved to be used next."))
    granted = models.BigIntegerField(
        _("granted"), default=0, help_text=_("Units in addition to the limit, in this period.")
    )
    limit = models.BigIntegerField(
        pgettext_lazy("number", "limit"), help_text=_("The limit when units were last reserved.")
    )
    resets = models.PositiveIntegerField(
        _("resets"), default=0, help_text=_("The number of times that the used units were set to 0.")
    )
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    class Meta:
        verbose_name = _("quota usage")
        verbose_name_plural = _("quota usage")
        ordering: ClassVar = ["-starts_at", "quota", "key"]
        default_permissions: ClassVar = ("view",)
        permissions: ClassVar = [
            ("grant_quotausage", "Can grant units of quotas"),
            ("reset_quotausage", "Can reset the usage of quotas"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["quota", "key", "starts_at"], name="resty_limits_quota_key"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["ends_at"], name="resty_limits_quota_end"),
            models.Index(fields=["key"], name="resty_limits_quota_by_key"),
        ]

    def __str__(self) -> str:
        return one_line(f"{self.quota}: {self.key}")


class KeyBan(Unmanaged):
    """A ban of a key in the admin: the token of its name in the dictionary of bans, and the permissions."""

    title = ""
    """The key as the pages show it."""

    class Meta(Unmanaged.Meta):
        verbose_name = _("ban")
        verbose_name_plural = _("temporary bans")
        permissions: ClassVar = [("lift_keyban", "Can lift bans")]

    def __str__(self) -> str:
        return self.title or self.name
