"""A site whose objects of every kind have hostile names, filled once for all tests of a module, and restored by a test
that changes it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote as percent_encoded

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client as Browser
from django.test import override_settings
from redis import Redis

from resty_django.admin.statistics import KeyView
from resty_django.cache import mlcaches
from resty_django.ids import service
from resty_django.limits import Decision
from resty_django.limits.bans import registry as bans
from resty_django.limits.models import LimitOverride, LimitPolicy, QuotaUsage
from resty_django.limits.policies import registry
from resty_django.limits.statistics.reporter import stats
from resty_django.qless import Client, RecurringJob
from resty_django.qless.archive.writer import ArchiveWriter
from resty_django.qless.clients.default import default_client
from resty_django.qless.models import ArchivedJob, token
from resty_django.qless.outbox.entries import Call
from resty_django.shdict import shdicts
from tests.integration.ids.admin_tools import make_counter, make_rule
from tests.integration.limits.policy_tools import clean_up, make_policy
from tests.integration.qless.admin.tools import hostile

HOSTILE: Final = (
    "<script>alert(1)</script>\"'\\&{{x}}%s\r\n2026-01-01 ERROR forged\t\x00\x1b[2J\x9b1m\u202e\u2066\u2028é/#?"
)
"""A name that another client of a store may use for anything."""
NOT_UTF8: Final = "\udcff\udcfe" + HOSTILE
"""The same, of bytes that are not UTF-8: for keys of dictionaries."""
STORABLE: Final = HOSTILE.replace("\x00", "")
"""The text without NUL, which PostgreSQL does not store."""
HTML: Final = "<script>alert(1)</script>\"'\\&{{x}}%s é/#?"
"""A text that an operator has written."""
LONG: Final = HOSTILE + "x" * 3000
DICTIONARIES: Final = ("default", "bans", "events", "limits")
TASKS: Final = "tests.integration.qless.tasks.examples"
LABELS: Final = ("resty_django", "resty_ids", "resty_limits", "resty_cache", "resty_qless")


@dataclass
class RoutesSite:
    """The site, the names of its objects as they stand in URLs, and its state."""

    jobs: Client
    redis: Redis
    objects: dict[str, str] = field(default_factory=dict)
    """Keys of the placeholders of a URL, e.g. `job`, and what stands for them."""
    _browsers: dict[tuple[str, ...] | None, Browser] = field(default_factory=dict)
    _dump: dict[bytes, Any] = field(default_factory=dict)

    @cached_property
    def permissions(self) -> dict[str, Permission]:
        rows = Permission.objects.filter(content_type__app_label__in=LABELS).select_related("content_type")
        return {f"{row.content_type.app_label}.{row.codename}": row for row in rows}

    def browser(self, *permissions: str) -> Browser:
        """Return a browser of a member of staff with these permissions, given as `label.codename`."""
        return self._signed_in(permissions)

    def browser_without(self, *permissions: str) -> Browser:
        """Return a browser of a member of staff with all permissions of the package except these."""
        return self._signed_in([name for name in self.permissions if name not in permissions])

    def boss(self, *, strict: bool = False) -> Browser:
        """Return a browser of a superuser. `strict`: it checks the CSRF token."""
        browser = self._signed_in(None)
        if strict:
            strict_browser = Browser(enforce_csrf_checks=True)
            strict_browser.cookies = browser.cookies
            return strict_browser
        return browser

    def _signed_in(self, permissions: Iterable[str] | None) -> Browser:
        key = None if permissions is None else tuple(sorted(permissions))
        if key not in self._browsers:
            user = User.objects.create(username=f"user{len(self._browsers)}", is_staff=True, is_superuser=key is None)
            user.user_permissions.set(self.permissions[name] for name in key or ())
            self._browsers[key] = Browser()
            self._browsers[key].force_login(user)
        return self._browsers[key]

    def state(self) -> dict[str, Any]:
        """Return what an action may change: rows, jobs, and items of dictionaries."""
        dictionary, cache, policy = shdicts["default"], mlcaches["pages"], registry.get_policy("pay")
        peeked = {key: cache.peek(key) for key in (HOSTILE, "tagged")}
        return {
            **{model.__name__: list(model._base_manager.order_by("pk").values()) for model in models()},
            "jobs": dump_of(self.redis),
            "items": [dictionary.get(HOSTILE), dictionary.get(NOT_UTF8), dictionary.get_stale("expired")],
            "cached": {key: item and item.value for key, item in peeked.items()},
            "bans": [ban.key for ban in bans.current_bans()],
            "limit": policy and policy.limiter.peek(HOSTILE).remaining,
        }

    def changed(self, before: dict[str, Any]) -> list[str]:
        """Return the names of the parts that have changed since `state()`."""
        return [name for name, value in self.state().items() if value != before[name]]

    def remember(self) -> None:
        self._dump = dump_of(self.redis)

    def restore(self) -> None:
        """Undo what a test has changed in Redis and in dictionaries; its transaction is rolled back."""
        if dump_of(self.redis) != self._dump:
            self.redis.flushdb()
            for key, value in self._dump.items():
                self.redis.restore(key, 0, value)
        registry.forget_policies()
        fill_dictionaries()


def models() -> list[Any]:
    """Return the models with tables, and Django's history."""
    ours = [model for label in LABELS for model in apps.get_app_config(label).get_models()]
    return [model for model in ours if model._meta.managed] + [LogEntry]


def dump_of(redis: Redis) -> dict[bytes, Any]:
    keys = sorted(redis.keys("*"))
    with redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.dump(key)
        return dict(zip(keys, pipe.execute(), strict=True))


def settings_of(url: str, folder: Path) -> dict[str, Any]:
    """Return the settings of a site whose jobs are on a server, and whose dictionaries are in a folder."""
    return {
        "CACHES": {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}},
        "RESTY_DJANGO": {
            "SHARED_DICTS": {name: {"PATH": str(folder)} for name in DICTIONARIES},
            "LIMITS": {"REFRESH": 60.0},
            "QLESS": {
                **{"URL": url, "WORKER_NAME": "here-1", "MODULES": [TASKS]},
                **{"ARCHIVE": {"RETENTION": "365d"}, "OUTBOX": ["with-outbox"]},
            },
            "CACHES": {"pages": {}},
            "IDS": {"STEP": 3},
        },
    }


def fill_rows() -> dict[str, str]:
    """Create a row of each model, and return what stands for them in URLs."""
    rule, counted = make_rule(STORABLE[:60]), make_rule(STORABLE[:59])
    counter, other = (make_counter(counted, app, 600, step=step) for app, step in ((STORABLE[:60], 3), ("other", 1)))
    make_counter(make_rule("orders"), "", 600, step=3)
    make_rule("spare")
    working, policy = make_policy("pay"), make_policy("hostile")
    LimitPolicy.objects.filter(pk=policy.pk).update(name=STORABLE[:50], description=HTML)
    override = LimitOverride.objects.create(kind="key", key=HTML, rate="60/m", reason=HTML)
    now = int(time.time())
    usage = QuotaUsage.objects.create(
        quota=STORABLE[:50], key=STORABLE, starts_at=now - 60, ends_at=now + 86_400, used=3, limit=1000
    )
    rows = {
        "rule": rule,
        "counter": counter,
        "other_step": other,
        "policy": policy,
        "pay": working,
        "override": override,
        "usage": usage,
    }
    return {name: str(row.pk) for name, row in rows.items()} | {name: name for name in ("orders", "spare")}


def fill_jobs(client: Client) -> dict[str, str]:
    """Create jobs in each state, groups, workers, tags and options, and return what stands for them in URLs."""
    hostile(client, HOSTILE)
    queue = client.queues[HOSTILE]
    client.call("unpause", HOSTILE)
    for number, end in enumerate(("complete", "archived")):
        queue.put(HOSTILE, {HOSTILE: HOSTILE}, jid=HOSTILE + end, priority=1000 - number, tags=[HOSTILE])
        job = queue.pop()
        assert job is not None
        assert job.jid == HOSTILE + end
        job.complete(result=HOSTILE)
    ArchiveWriter(client).run()
    queue.put(HOSTILE, HOSTILE, jid=HOSTILE + "scheduled", delay=3600, tags=[HOSTILE])
    queue.put(HOSTILE, HOSTILE, jid=HOSTILE + "waiting", tags=[HOSTILE, "vip"])
    queue.put(HOSTILE, LONG, jid=HOSTILE + "loop", depends=[HOSTILE + "loop"])
    recurring = client.jobs[HOSTILE + "r"]
    assert isinstance(recurring, RecurringJob)
    recurring.tag("vip")
    client.queues["idle"].put("K", jid="last")
    client.jobs["last"].cancel()
    client.queues[HOSTILE].pause()
    client.call("pace", HOSTILE, 0.01)
    names = {
        **dict.fromkeys(("queue", "failure", "class", "worker", "tag", "option", "running"), HOSTILE),
        **{"dependent": HOSTILE + "2", "failed": HOSTILE + "3", "recurring": HOSTILE + "r"},
        **{name: HOSTILE + name for name in ("scheduled", "waiting", "complete", "archived", "loop")},
        "group": "".join(HOSTILE.split()) + "g",
        "idle": "idle",
        "cron": f"cron-{TASKS}.nightly",
    }
    in_admin = {name: quote(token(value)) for name, value in names.items()}
    in_admin["row"] = str(ArchivedJob.objects.get(key=token(HOSTILE + "archived")).pk)
    names["entry"] = fill_outbox()
    in_admin["entry"] = quote(names["entry"])
    in_forms = {f"token_{name}": token(value) for name, value in names.items()}
    return in_admin | in_forms | {f"api_{name}": in_api(value) for name, value in names.items()}


def fill_outbox() -> str:
    """Create an entry of the outbox that was refused, and return its key in the admin."""
    jid = HOSTILE + "entry"
    put = ("put", HOSTILE, HOSTILE, jid, HOSTILE, json.dumps({HOSTILE: HOSTILE}), 0, "tags", json.dumps([HOSTILE]))
    call = Call(commands=[put], jids=[jid], depends=[HOSTILE], klass=HOSTILE, queue=HOSTILE)
    entry = call.entry(time.time() - 300, None)
    entry.state, entry.error = entry.State.REFUSED, STORABLE
    entry.save()
    return f"default:{entry.pk}"


def in_api(name: str) -> str:
    return percent_encoded(percent_encoded(name, safe=""))


def fill_dictionaries() -> None:
    """Fill dictionaries, the cache, bans and the state of a limit as they are at first."""
    dictionary, cache = shdicts["default"], mlcaches["pages"]
    for key in (HOSTILE, NOT_UTF8):
        dictionary.set(key, HOSTILE)
    dictionary.set("expired", HOSTILE, 0.001)
    cache.set(HOSTILE, HOSTILE, ttl=0)
    cache.set("tagged", HOSTILE, ttl=0, tags=(HOSTILE, "vip"))
    if not bans.current_bans():
        bans.add(HOSTILE, for_="1h", limit=HOSTILE, reason=HOSTILE[:200])
    policy = registry.get_policy("pay")
    assert policy is not None
    policy.limiter.reset(HOSTILE)
    policy.limiter.hit(HOSTILE)
    refused = Decision(allowed=False, limit=1, remaining=0, reset_after=1, retry_after=1)
    for name in ("pay", HOSTILE, f"function:{HOSTILE}"):
        stats.record(name, HOSTILE, refused)
    stats.flush()


def in_dictionaries() -> dict[str, str]:
    """Return what stands for dictionaries, caches and bans in URLs."""
    (ban,) = bans.current_bans()
    return {
        **{
            "dictionary": "default",
            "cache": "pages",
            "ban": quote(KeyView.of(ban.name).token),
            "ban_token": KeyView.of(ban.name).token,
        },
        **{"key": KeyView.of(HOSTILE).token, "not_utf8": KeyView.of(NOT_UTF8).token},
        "name": HOSTILE,
        "hostile": percent_encoded(HOSTILE),
        "series": percent_encoded(f"function:{HOSTILE}"),
    }


@pytest.fixture(scope="module")
def filled_site(
    people: list[list[list[str]]],
    django_db_setup: None,
    django_db_blocker: Any,
    valkey_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RoutesSite]:
    """The site. Its rows and people are committed; each test runs in a transaction."""
    clean_up()
    with (
        django_db_blocker.unblock(),
        override_settings(**settings_of(valkey_url, tmp_path_factory.mktemp("routes") / "dicts")),
        Redis.from_url(valkey_url) as redis,
    ):
        redis.flushdb()
        client = default_client()
        site = RoutesSite(client, redis)
        site.objects = fill_rows() | fill_jobs(client)
        fill_dictionaries()
        site.objects |= in_dictionaries()
        site.boss()
        for needed in people:
            site.browser(*(names[0] for names in needed))
            for names in needed:
                site.browser_without(*names)
        site.remember()
        yield site
        service.stop()
        clean_up()
        shdicts.close_all()
        redis.flushdb()
        call_command("flush", interactive=False, verbosity=0)
    clean_up()


@pytest.fixture
def site(filled_site: RoutesSite, db: None) -> Iterator[RoutesSite]:
    """The site; what a test changes is restored."""
    yield filled_site
    filled_site.restore()
