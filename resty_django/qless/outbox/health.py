"""Health of the outbox, for `manage.py resty_check`."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError

from resty_django.conf import conf
from resty_django.health import Finding, described
from resty_django.text import one_line

from ..clients.default import default_client
from .status import status


def probe() -> Iterator[Finding]:
    """Report what waits. Warns of entries that are late or were refused."""
    if not conf.qless.outbox.is_used:
        return
    try:
        outbox = status(default_client())
    except ImproperlyConfigured:
        return  # the probe of the job queue reports it
    except DatabaseError as error:
        yield Finding("error", "job outbox", f"Its table cannot be read: {described(error)}")
        return
    texts = [f"{outbox.waiting:,} entries wait, the oldest for {outbox.age:,.0f} s."]
    if outbox.is_late:
        texts.append("Redis does not answer, or no worker delivers them. Start manage.py runqless or qless_outbox.")
    if outbox.refused:
        texts.append(f"{outbox.refused:,} were refused. Deliver or discard them in the admin.")
    if outbox.error:
        texts.append(f"Last error: {one_line(outbox.error, 300)}")
    yield Finding("warning" if outbox.needs_attention else "ok", "job outbox", " ".join(texts))
