"""The mistakes of docs/howto/common-mistakes.md, as a new user makes them: settings, and a command or code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOCMEM: Final = 'CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}'
NO_SERVER: Final = 'CACHES["default"]["LOCATION"] = "redis://127.0.0.1:1/0"'
FAR: Final = NO_SERVER + '\nRESTY_DJANGO = {"SHARED_DICTS": {"hits": {"ENGINE": "redis"}}}'
EMPTY: Final = 'DATABASES["default"]["NAME"] = ":memory:"'
LIMIT: Final = "from resty_django.limits import limit, limit_conn, limit_req\n"
TASK: Final = "from resty_django.qless import task\n"
SEND: Final = "from shop.tasks import send\n"
RULE: Final = "from resty_django.ids.models import IdRule\nfrom resty_django.ids import next_id\n"
CACHE: Final = "from resty_django.cache import cache_view, cached, mlcaches\n"
DICTS: Final = "from resty_django.shdict import shdicts\n"
VIEW: Final = "def page(request): ...\n"
LOGIN: Final = '{"name": "login", "algorithm": "sliding_window", "limit": 3, "window": "1min"%s}'
REQUEST: Final = (
    "from django.http import HttpResponse\nfrom django.test import RequestFactory\nfrom django.views import View\n"
)


@dataclass(frozen=True)
class Mistake:
    """`settings`: lines that are added. `code`: run in the site. `command`: of manage.py, in place of it.

    `without`: modules that cannot be imported, as where an extra is not installed. `port`: the command gets the option
    --port with a UDP port that another socket has.
    """

    code: str = ""
    settings: str = ""
    command: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    port: bool = False


CHECK: Final = ("check",)

MISTAKES: Final[dict[str, Mistake]] = {
    # Installation and settings
    "A misspelt setting": Mistake(settings='RESTY_DJANGO = {"LIMITZ": {}}', command=CHECK),
    "A setting of the wrong type": Mistake(settings='RESTY_DJANGO = {"IDS": {"STEP": "many"}}', command=CHECK),
    "The core app is not in INSTALLED_APPS": Mistake(settings='INSTALLED_APPS.remove("resty_django")', command=CHECK),
    "The app of a part is not in INSTALLED_APPS": Mistake(
        settings=EMPTY + '\nINSTALLED_APPS.remove("resty_django.ids")',
        code='from resty_django.ids import next_id\nnext_id("order")',
    ),
    "The tables are missing": Mistake(settings=EMPTY, code='from resty_django.ids import next_id\nnext_id("order")'),
    "The health check without tables": Mistake(
        settings=f"{EMPTY}\n{LOCMEM}", command=("resty_check", "--only", "limits")
    ),
    "The extra redis is missing": Mistake(
        settings=LOCMEM, code=SEND + "send.delay(7)", without=("redis", "django_redis")
    ),
    "The extra api is missing": Mistake(
        settings=LOCMEM, code="import resty_django.limits.throttling", without=("rest_framework",)
    ),
    "The extra lua is missing": Mistake(
        code=RULE + 'IdRule(name="x", kind="lua", source="function create_id(c) return c end").full_clean()',
        without=("lupa",),
    ),
    "The extra cron is missing": Mistake(
        code=TASK + '@task(cron="0 3 * * *")\ndef clean_up(): ...', without=("cronsim",)
    ),
    # IDs
    "An unknown ID rule": Mistake(code=RULE + 'next_id("ordr")'),
    "An ID rule that cannot be used": Mistake(
        code=RULE + 'IdRule(name="ticket", source="T{countre:06d}").save()\nnext_id("ticket")'
    ),
    "An ID inside a transaction that has written, on SQLite": Mistake(
        code=RULE + "from django.contrib.auth.models import User\nfrom django.db import transaction\n"
        'with transaction.atomic():\n    User.objects.create(username="ann")\n    next_id("order")'
    ),
    "A UDP port that is taken": Mistake(command=("runidserver",), port=True),
    # Limits
    "A rate with an unknown unit": Mistake(code=LIMIT + '@limit_req("10/sek")\n' + VIEW),
    "A rate without a unit": Mistake(code=LIMIT + '@limit_req("10")\n' + VIEW),
    "A negative burst": Mistake(code=LIMIT + '@limit_req("10/s", burst=-1)\n' + VIEW),
    "A misspelt option of a limit": Mistake(code=LIMIT + '@limit_req("10/s", brust=5)\n' + VIEW),
    "A misspelt key of a limit": Mistake(code=LIMIT + '@limit_req("10/s", key="usr")\n' + VIEW),
    "A limit without parentheses": Mistake(code=LIMIT + "@limit_req\n" + VIEW),
    "A limit on a class": Mistake(
        code=LIMIT + REQUEST + '@limit_req("10/s")\nclass Page(View):\n    def get(self, request): ...'
    ),
    "A misspelt policy": Mistake(
        settings=f'RESTY_DJANGO = {{"LIMITS": {{"RULES": [{LOGIN % ""}]}}}}',
        code=LIMIT
        + REQUEST
        + '@limit("lgoin")\ndef page(request): return HttpResponse()\npage(RequestFactory().get("/"))',
    ),
    "Policies without the middleware": Mistake(
        settings='RESTY_DJANGO = {"LIMITS": {"RULES": [' + LOGIN % ', "path": "/login/"' + "]}}",
        command=CHECK,
    ),
    # Shared dictionaries
    "An unknown shared dictionary": Mistake(code=DICTS + 'shdicts["defaultt"]'),
    "A value that is too large": Mistake(code=DICTS + 'shdicts["default"].set("report", "x" * 50_000_000)'),
    "A value of a type that cannot be stored": Mistake(code=DICTS + 'shdicts["default"].set("now", object())'),
    "A counter without a start value": Mistake(code=DICTS + 'shdicts["default"].incr("visits", 1)'),
    "A dictionary on Redis without a server": Mistake(settings=FAR, code=DICTS + 'shdicts["hits"].get("visits")'),
    # The cache
    "The value in place of a callback": Mistake(code=CACHE + 'mlcaches["default"].get("price", 5)'),
    "A value that cannot be cached": Mistake(code=CACHE + 'mlcaches["default"].get("price", lambda: object())'),
    "Tags as text": Mistake(code=CACHE + 'mlcaches["default"].set("price", 17.5, tags="product:7")'),
    "A model that is not installed": Mistake(
        code=CACHE + 'from resty_django.cache import invalidate_on\ninvalidate_on("auth.Grup").tags(7)'
    ),
    "A misspelt option of the cache": Mistake(code=CACHE + "@cached(tll=60)\ndef price(): ..."),
    "A cache on Redis without a server": Mistake(
        settings=FAR + '\nRESTY_DJANGO["CACHES"] = {"prices": {"SHM": "hits"}}',
        code=CACHE + 'mlcaches["prices"].get("tea", lambda: 17.5)',
    ),
    "A misspelt `on_error`": Mistake(code=CACHE + '@cached(on_error="sorce")\ndef price(): ...'),
    "`@cached` without parentheses": Mistake(code=CACHE + "@cached\ndef price(): ..."),
    "`@cache_view` without seconds": Mistake(code=CACHE + "@cache_view\n" + VIEW),
    "`@cache_view` on a method": Mistake(
        code=CACHE + REQUEST + "class Page(View):\n    @cache_view(60)\n    def get(self, request): ...\n"
        'Page.as_view()(RequestFactory().get("/"))'
    ),
    # Jobs
    "No Redis runs": Mistake(settings=NO_SERVER, code=SEND + "send.delay(7)"),
    "The queue on a cache that is not Redis": Mistake(settings=LOCMEM, command=("runqless",)),
    "No worker for a queue": Mistake(code=SEND + "send.delay(7)\n", command=("resty_check", "--only", "jobs")),
    "An unknown pool of workers": Mistake(
        settings='RESTY_DJANGO = {"QLESS": {"WORKER": {"POOL": "process"}}}', command=CHECK
    ),
    "A model instance as an argument": Mistake(
        code=SEND + "from django.contrib.auth.models import User\nsend.delay(User(pk=7))"
    ),
    "An argument that JSON cannot hold": Mistake(code=SEND + "send.delay(open)"),
    "Wrong arguments of a task": Mistake(code=SEND + "send.delay()"),
    "One argument in place of a list": Mistake(code=SEND + "send.apply_async(7)"),
    "A misspelt option of `apply_async`": Mistake(code=SEND + 'send.apply_async((7,), quue="mail")'),
    "A misspelt option of `@task`": Mistake(code=TASK + '@task(quue="mail")\ndef send(order): ...'),
    "The queue of a task without its name": Mistake(code=TASK + '@task("mail")\ndef send(order): ...'),
    "Retries as text": Mistake(code=TASK + '@task(retries="3")\ndef send(order): ...'),
    "A wrong cron expression": Mistake(code=TASK + '@task(cron="0 25 * * *")\ndef clean_up(): ...'),
    "A task inside a function": Mistake(
        code=TASK + "def view(request):\n    @task\n    def send(order): ...\nview(None)"
    ),
    "A task in a module that workers do not run": Mistake(
        code="import shop.mails\nshop.mails.send.delay(7)",
    ),
}
