"""A task with a callback, and a job class, for the pages on which operators enqueue jobs."""

from __future__ import annotations

import subprocess as subprocess  # imported from elsewhere, so never offered
from typing import Any

from resty_django.qless import task
from tests.integration.qless.tasks.examples import note


@task(queue="q", on_success=note)
def reported() -> None: ...


class Mailer:
    @staticmethod
    def perform(job: Any) -> None: ...


class Template:
    """Runs no jobs."""

    def perform(self, job: Any) -> None: ...
