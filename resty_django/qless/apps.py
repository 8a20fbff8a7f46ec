"""The app `resty_qless`."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from resty_django import appconfig
from resty_django.appconfig import Part


class QlessConfig(appconfig.RestyAppConfig):
    name = "resty_django.qless"
    label = "resty_qless"
    verbose_name = _("Jobs")
    default_auto_field = "django.db.models.BigAutoField"
    system_checks = (
        "resty_django.checks.check_core",
        "resty_django.qless.checks.check_qless",
        "resty_django.qless.checks.check_tasks",
    )
    deploy_checks = ("resty_django.qless.checks.check_eager",)
    parts = (
        Part(
            name="jobs",
            title=_("Jobs"),
            permissions=("resty_qless.view_job",),
            page="resty_qless_queue_changelist",
            order=40,
        ),
        Part(
            name="outbox",
            title=_("Job outbox"),
            permissions=("resty_qless.view_job",),
            module="resty_django.qless.outbox",
            page="resty_qless_outboxentry_changelist",
            order=41,
            database=True,
        ),
    )

    def ready(self) -> None:
        super().ready()
        from resty_django.callables import deferred

        from .job_classes import register_adapter, register_scheme

        integrations = f"{self.name}.integrations"
        register_scheme("celery", deferred(f"{integrations}.celery.celery_task"))
        register_scheme("celery-send", deferred(f"{integrations}.celery.celery_send"))
        for package in ("django.tasks", "django_tasks"):
            register_adapter(f"{package}.base.Task", deferred(f"{integrations}.django_tasks.runner.DjangoTask"))
