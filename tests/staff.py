"""Members of staff for the tests of the admin, the pages that they see, and what is noted of their actions."""

from __future__ import annotations

import re

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client


def signed_in(app_label: str, *codenames: str) -> Client:
    """A member of staff with these permissions of an app, signed in."""
    user = User.objects.create_user(f"user{User.objects.count()}", is_staff=True)
    permissions = Permission.objects.filter(content_type__app_label=app_label, codename__in=codenames)
    assert len(permissions) == len(codenames)
    user.user_permissions.set(permissions)
    client = Client()
    client.force_login(user)
    return client


def text_of(client: Client, url: str) -> str:
    reply = client.get(url)
    assert reply.status_code == 200, reply
    return reply.content.decode()


def plain(html: str) -> str:
    """The text of a page, without its tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def logged() -> list[str]:
    """The messages of all log entries of the admin."""
    return [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
