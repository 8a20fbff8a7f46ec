"""Jobs, users and URLs for the tests of the job queue's admin."""

from __future__ import annotations

import re
import time
from html import unescape
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.clients.worker_reports import Frame, JobStack, WorkerStacks, encode_report
from resty_django.qless.models import token
from tests.integration.qless.conftest import pop

ROOT = "/admin/resty_qless/"
HOSTILE = "<b>\"it's\\&{{x}}%s</b>\u202eé\x00/#?"
"""A name that another client may use for anything."""


def path(model: str, name: str | None = None, page: str = "change") -> str:
    return f"{ROOT}{model}/" if name is None else f"{ROOT}{model}/{quote(token(name))}/{page}/"


def bulk(**query: str) -> str:
    return f"{ROOT}job/bulk/?" + urlencode({key: token(value) for key, value in query.items()})


def person(*codenames: str) -> Browser:
    """Return a client of a staff user with these permissions."""
    user = User.objects.create_user(f"user{User.objects.count()}", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="resty_qless", codename__in=codenames))
    client = Browser()
    client.force_login(user)
    return client


def text_of(client: Browser, url: str, status: int = 200) -> str:
    reply = client.get(url)
    assert reply.status_code == status, (url, reply.status_code, getattr(reply, "url", ""))
    return reply.content.decode()


def plain(text: str) -> str:
    """Return the text of a page, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def jids(text: str) -> list[str]:
    """Return the jobs of a list, in its order."""
    return re.findall(r'class="resty-id" href="[^"]*" title="([^"]*)"', text)


def message_in(reply: Any) -> str:
    """Return the message of a page to its user."""
    return unescape("".join(re.findall(r"(?s)messagelist.*?</ul>", reply.content.decode())))


def hidden(text: str) -> dict[str, list[str]]:
    """Return the hidden fields of the form of an operation."""
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="([\w-]+)" value="([^"]*)"', text):
        if name != "csrfmiddlewaretoken":
            fields.setdefault(name, []).append(unescape(value))
    return fields


def everything(valkey: Any) -> dict[bytes, Any]:
    """Return a dump of every key."""
    return {key: valkey.dump(key) for key in valkey.keys("*")}


def report(client: Client, name: str, **fields: Any) -> None:
    """Report as a worker does."""
    text = encode_report(
        {
            **{"host": "web1", "pid": 4711, "started": time.time() - 7200, "state": "running", "slots": 8},
            **{"max_slots": 64, "used": 3, "pool": "threads", "package": "1.2.3", "python": "3.13.1"},
            **{"django": "6.1", "release": "abc123", "jobs": [], **fields},
        }
    )
    client.call("worker.alive", name, "mail", "pdf")
    client.call("worker.report", name, text)


def run_steps(browser: Browser, url: str, data: dict[str, Any]) -> list[str]:
    """Post all steps, and return the progress text of each page."""
    progress_texts = []
    for _ in range(50):
        reply = browser.post(url, data)
        if reply.status_code == 302:
            return progress_texts
        text = reply.content.decode()
        progress_texts += re.findall(r'<label for="resty-progress">([^<]*)<', text)
        data = hidden(text)
    pytest.fail(f"it does not end: {progress_texts}")


def failed(client: Client, jid: str, group: str = "mail-Timeout", queue: str = "mail", **options: Any) -> str:
    """Enqueue a job that fails, and return its jid."""
    client.queues[queue].put("shop.jobs.Send", {"order": 7}, jid=jid, priority=1000, **options)
    job = pop(client.queues[queue])
    assert job.jid == jid
    job.fail(group, "Traceback of it\nTimeout: the server said nothing")
    return jid


def fill(client: Client, name: str = "mail") -> dict[str, str]:
    """Fill a queue with a job in each state, and return the jids by state."""
    queue = client.queues[name]
    jids = {"failed": failed(client, "failed-1", queue=name, tags=["vip"])}
    for jid in ("complete-1", "running-1"):
        queue.put("shop.jobs.Send", {"order": 1}, jid=jid, priority=500)
        job = pop(queue)
        if jid == "complete-1":
            job.complete(result={"sent": True})
    jids |= {"complete": "complete-1", "running": "running-1"}
    jids["waiting"] = queue.put(
        "shop.jobs.Send", {"order": 2, "password": "hunter2"}, jid="waiting-1", tags=["vip", "eu"], priority=5
    )
    jids["scheduled"] = queue.put("shop.jobs.Send", {}, jid="scheduled-1", delay=3600)
    jids["depends"] = queue.put("shop.jobs.Send", {}, jid="depends-1", depends=["waiting-1"])
    jids["recurring"] = queue.recur("shop.jobs.Digest", {"to": "all"}, 3600, jid="recurring-1", offset=60)
    return jids


def hostile(client: Client, name: str = HOSTILE) -> None:
    """Create objects of every kind with this name."""
    queue, group = client.queues[name], f"{''.join(name.split())}g"
    queue.put(name, {name: name}, jid=name, tags=[name], priority=9)
    queue.put(name, name, jid=f"{name}2", tags=[name], priority=8, depends=[name])
    queue.put(name, name, jid=f"{name}3", priority=7)
    callbacks = [[name, name, name, {name: name}]]
    client.groups.open(group, name, on_success=callbacks, on_complete=[[f"{name}4", *callbacks[0][1:]]])
    outcome = {"failure": callbacks, f"policy:{name}": "skip", "policy": "fail", "group": group}
    queue.put(name, name, jid=f"{name}5", depends=[f"{name}2", name], outcome=outcome)
    client.worker_name = name
    queue.recur(name, {name: name}, 60, jid=f"{name}r", offset=60, tags=[name])
    running = queue.pop(2)
    running[1].fail(name, name)
    running[0].progress(0.5, name)
    running[0].log(name, {name: name})
    running[0].track()
    texts = dict.fromkeys(("host", "state", "pool", "package", "python", "django", "release"), name)
    late = {"jid": name, "klass": name, "seconds": 1e9, "usual": 1.0}
    report(client, name, **{**texts, "started": 1.0, "jobs": [late]})
    client.workers.quiet(name)
    frames = [Frame(name, 1, name, name)]
    stacks = WorkerStacks(id=1, at=1.0, jobs=[JobStack(jid=name, klass=name, seconds=1.0, frames=frames)])
    client.call("worker.stacks", name, msgspec.json.encode(stacks))
    client.config.set(name, name)
    queue.pause(reason=name, by=name)
    client.worker_name = "here-1"
