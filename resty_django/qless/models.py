"""Models of the job queue: the archive of finished jobs, the outbox, and unmanaged models for Django's permissions and
admin, since jobs are in Redis."""

from __future__ import annotations

import base64
import binascii
import re
from typing import ClassVar, Self

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from resty_django.database.fields import ExactCharField
from resty_django.models import NoRows
from resty_django.text import one_line


class Named(models.Model):
    """An object of the job queue in the admin. Its primary key is `token(name)`, since names may be any bytes."""

    key = models.CharField(_("name"), max_length=255, primary_key=True)

    objects: ClassVar[NoRows[Self]] = NoRows()

    class Meta:
        abstract = True
        managed = False
        base_manager_name = "objects"
        default_permissions: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        """Return the name, with unprintable characters escaped."""
        return one_line(self.name)

    @classmethod
    def from_name(cls, name: str) -> Self:
        return cls(key=token(name))

    @property
    def name(self) -> str:
        return name_of(self.key)


class Queue(Named):
    class Meta(Named.Meta):
        verbose_name = _("queue")
        verbose_name_plural = _("queues")


class Job(Named):
    class Meta(Named.Meta):
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        default_permissions = ("view",)
        permissions = [
            ("retry_job", _("Can retry, move and time out jobs, and run scheduled and recurring jobs now")),
            ("cancel_job", _("Can cancel jobs")),
            ("edit_job", _("Can change priority, tags, tracking and dependencies of jobs, and recurring jobs")),
            ("start_job", _("Can start jobs with arguments of their choice: new and repeated jobs, recurring jobs")),
            ("pause_queue", _("Can pause and unpause queues")),
            ("configure_jobs", _("Can change options, forget queues and deregister workers")),
            ("control_worker", _("Can quiet, resume, stop and scale workers, and request the stacks of their jobs")),
        ]


class FailureGroup(Named):
    class Meta(Named.Meta):
        verbose_name = _("failure group")
        verbose_name_plural = _("failures")


class JobGroup(Named):
    class Meta(Named.Meta):
        verbose_name = _("job group")
        verbose_name_plural = _("job groups")


class JobClass(Named):
    class Meta(Named.Meta):
        verbose_name = _("job class")
        verbose_name_plural = _("classes")


class Worker(Named):
    class Meta(Named.Meta):
        verbose_name = _("worker")
        verbose_name_plural = _("workers")


class RecurringJob(Named):
    class Meta(Named.Meta):
        verbose_name = _("recurring job")
        verbose_name_plural = _("recurring jobs")


class Tag(Named):
    class Meta(Named.Meta):
        verbose_name = _("tag")
        verbose_name_plural = _("tags")


class Option(Named):
    class Meta(Named.Meta):
        verbose_name = _("option")
        verbose_name_plural = _("configuration")


class ArchivedJob(models.Model):
    """A finished job in the archive: its latest end. Arguments and history are redacted; times are UTC.

    `key`: the token of the jid.
    """

    class State(models.TextChoices):
        COMPLETE = "complete", _("complete")
        FAILED = "failed", _("failed")
        CANCELED = "canceled", _("canceled")

    class Arguments(models.TextChoices):
        COMPLETE = "complete", pgettext_lazy("arguments", "complete")
        REDACTED = "redacted", _("redacted")
        CUT = "cut", pgettext_lazy("arguments", "not complete")

    key = ExactCharField(_("jid"), max_length=255, unique=True)
    klass = ExactCharField(_("class"), max_length=200)
    queue = ExactCharField(_("queue"), max_length=200)
    state = models.CharField(_("state"), max_length=8, choices=State)
    priority = models.FloatField(_("priority"), default=0)
    tags = models.TextField(_("tags"), default="[]")
    txid = ExactCharField(_("transaction"), max_length=200, blank=True)
    arguments = models.TextField(_("arguments"), default="null")
    arguments_are = models.CharField(_("arguments are"), max_length=8, choices=Arguments)
    error_group = models.CharField(_("failure group"), max_length=200, blank=True)
    error_message = models.TextField(_("error"), blank=True)
    worker = models.CharField(_("worker"), max_length=200, blank=True)
    retries = models.IntegerField(_("retries"), default=0)
    retries_left = models.IntegerField(_("retries left"), default=0)
    put_at = models.DateTimeField(_("put"))
    started_at = models.DateTimeField(_("started"), null=True)
    finished_at = models.DateTimeField(_("finished"))
    waited = models.FloatField(_("seconds waiting"), null=True)
    ran = models.FloatField(_("seconds running"), null=True)
    history = models.TextField(_("history"), default="[]")

    class Meta:
        verbose_name = _("archived job")
        verbose_name_plural = _("archive")
        default_permissions = ()
        indexes = (
            models.Index(fields=("klass", "finished_at"), name="resty_qless_archive_class"),
            models.Index(fields=("queue", "finished_at"), name="resty_qless_archive_queue"),
            models.Index(fields=("state", "finished_at"), name="resty_qless_archive_state"),
            models.Index(fields=("finished_at",), name="resty_qless_archive_finished"),
        )

    def __str__(self) -> str:
        """Return the jid, with unprintable characters escaped."""
        return one_line(self.name)

    @property
    def name(self) -> str:
        """The jid."""
        return name_of(self.key)


class OutboxEntry(models.Model):
    """The commands of one call that enqueues jobs, written in the caller's transaction: see `qless.outbox`.

    - `key`: names the entry to the core, which carries out each of its commands once.
    - `jid`: the token of the first job. `ids`: all jobs and groups, if there are several; `depends`: what they wait for
      outside of the entry; each between line breaks.
    - `transaction`: the key of the first entry of the transaction. None: written outside of one.
    - `commands`: a JSON list.
    - `waiting_since`: when it was enqueued; after a redelivery, when it had been delivered.
    - `due_at`: when its next step is due: its delivery by any process, or its deletion.
    - `claim`: the process that delivers it.

    Times are UTC.
    """

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        REFUSED = "refused", _("refused")
        DELIVERED = "delivered", _("delivered")
        DISCARDED = "discarded", _("discarded")

    key = models.CharField(max_length=32)
    jid = ExactCharField(_("jid"), max_length=255, db_index=True)
    klass = ExactCharField(_("class"), max_length=255)
    queue = ExactCharField(_("queue"), max_length=255)
    jobs = models.PositiveIntegerField(_("jobs"))
    ids = models.TextField(blank=True)
    depends = models.TextField(blank=True)
    transaction = models.CharField(max_length=32, null=True, db_index=True)  # noqa: DJ001 (None: not in the index)
    commands = models.TextField()
    state = models.CharField(_("state"), max_length=9, choices=State, default=State.WAITING)
    waiting_since = models.DateTimeField(_("enqueued"))
    due_at = models.DateTimeField(_("next step"))
    delivered_at = models.DateTimeField(_("delivered"), null=True)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    error = models.TextField(_("last error"), blank=True)
    claim = models.CharField(max_length=16, blank=True)

    class Meta:
        verbose_name = _("outbox entry")
        verbose_name_plural = _("outbox")
        default_permissions = ()
        indexes = (models.Index(fields=("state", "due_at"), name="resty_qless_outbox_due"),)

    def __str__(self) -> str:
        """Return the first jid, with unprintable characters escaped."""
        return one_line(name_of(self.jid))


def token(name: str) -> str:
    """Return the form of a name for URLs and logs: the name itself if possible."""
    if name.isprintable() and name not in ("", ".", "..") and not name.startswith("~"):
        return name
    sent = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", name)  # what clients send in place of other surrogates
    return "~" + base64.urlsafe_b64encode(sent.encode("utf-8", "surrogateescape")).decode()


def name_of(token: str) -> str:
    """Return the name that a token stands for."""
    if not token.startswith("~"):
        return token
    try:
        return base64.b64decode(token[1:], altchars=b"-_", validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return token
