"""The throttles of Django REST framework."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import Client
from django.urls import ResolverMatch, path
from django.utils.decorators import method_decorator
from rest_framework.authentication import BaseAuthentication, BasicAuthentication, SessionAuthentication
from rest_framework.decorators import api_view, authentication_classes, permission_classes, throttle_classes
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from resty_django.limits import Concurrency
from resty_django.limits.callers import keys
from resty_django.limits.decorators import limit, limit_conn, limit_count
from resty_django.limits.policies import registry
from resty_django.limits.refusals import request_refused
from resty_django.limits.throttling import (
    ConcurrencyThrottle,
    FixedWindowThrottle,
    LeakyBucketThrottle,
    LimitThrottle,
    SlidingWindowThrottle,
    TokenBucketThrottle,
)
from resty_django.shdict import shdicts

from .view_tools import Asking, heard, serving

pytestmark = pytest.mark.usefixtures("empty_limits", "open_connections")

factory = APIRequestFactory()


class Quiet(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request, **kwargs: Any) -> Response:
        return Response("done")


def view(*throttles: Any, base: Any = Quiet, **attributes: Any) -> Any:
    return type("AView", (base,), {"throttle_classes": throttles, **attributes}).as_view()


def ask(drf_view: Any, user: Any = None, ip: str = "192.0.2.1", **kwargs: Any) -> Any:
    request = factory.get("/", REMOTE_ADDR=ip)
    if user is not None:
        force_authenticate(request, user)
    response = drf_view(request, **kwargs)
    if hasattr(response, "render"):
        response.render()
    response.close()
    return response


def statuses(drf_view: Any, count: int, **options: Any) -> list[int]:
    return [ask(drf_view, **options).status_code for _ in range(count)]


@pytest.fixture
def rates(settings: Any) -> Any:
    def enter(**rates: Any) -> None:
        settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": rates}

    return enter


def with_rate(base: type[LimitThrottle], rate: str, **attributes: Any) -> type[LimitThrottle]:
    return type(f"A{base.__name__}", (base,), {"rate": rate, **attributes})


@pytest.mark.usefixtures("limits_store")
@pytest.mark.parametrize(
    ("base", "rate"),
    [
        (LeakyBucketThrottle, "1/h burst=2"),
        (FixedWindowThrottle, "3/h"),
        (SlidingWindowThrottle, "3/365d"),
        (TokenBucketThrottle, "1/h capacity=3"),
    ],
)
def test_a_client_may_send_as_many_requests_as_the_limit_allows(base: type[LimitThrottle], rate: str) -> None:
    drf_view = view(with_rate(base, rate))
    assert statuses(drf_view, 5) == [200, 200, 200, 429, 429]
    assert statuses(drf_view, 1, ip="192.0.2.2") == [200]


def test_a_cost_that_can_never_pass() -> None:
    """In a class it is a mistake of the site; of a request it is refused, without a time to come again."""
    with pytest.raises(ImproperlyConfigured, match="A request of cost 4 can never pass"):
        ask(view(with_rate(SlidingWindowThrottle, "3/h", cost=4)))
    drf_view = view(with_rate(SlidingWindowThrottle, "3/h", cost=staticmethod(lambda request: 4)))
    refused = ask(drf_view)
    assert refused.status_code == 429
    assert "Retry-After" not in refused


def test_states_of_token_buckets_expire() -> None:
    store = shdicts["limits"]
    store.flush_all()
    assert statuses(view(with_rate(TokenBucketThrottle, "1/h")), 1) == [200]
    ttls = [store.ttl(key) for key in store.get_keys() if not key.startswith("resty:stats:")]
    assert ttls
    assert all(3600 < ttl < 4000 for ttl in ttls)


def test_headers_wait_and_signal() -> None:
    drf_view = view(with_rate(FixedWindowThrottle, "1/h", scope="uploads"))
    with heard(request_refused) as signals:
        passed, refused = ask(drf_view), ask(drf_view)
    assert passed["RateLimit"] == '"uploads";r=0;t=3600'
    assert passed["X-RateLimit-Limit"] == "1"
    assert refused["RateLimit-Policy"] == '"uploads";q=1;w=3600'
    assert 3590 <= int(refused["Retry-After"]) <= 3600
    assert "Expected available in 3" in refused.data["detail"]
    (one_refusal,) = signals
    assert (one_refusal["name"], one_refusal["key"]) == ("uploads", "ip:192.0.2.1")


def test_each_user_is_throttled_separately() -> None:
    drf_view = view(with_rate(FixedWindowThrottle, "1/h"))
    for user in (User(pk=1), User(pk=2), None):
        assert statuses(drf_view, 2, user=user) == [200, 429]


def test_a_user_who_came_by_the_authentication_of_drf(db: None) -> None:
    User.objects.create_user("ann", password="secret")

    @api_view(["GET"])
    @authentication_classes([BasicAuthentication])
    @permission_classes([AllowAny])
    @throttle_classes([with_rate(FixedWindowThrottle, "1/h", key="user_or_ip")])
    def one(request: Request) -> Response:
        return Response(str(request.user))

    credentials = {"HTTP_AUTHORIZATION": "Basic YW5uOnNlY3JldA==", "REMOTE_ADDR": "192.0.2.1"}
    assert [one(factory.get("/", **credentials)).status_code for _ in range(2)] == [200, 429]
    assert one(factory.get("/", REMOTE_ADDR="192.0.2.1")).status_code == 200


def test_throttles_have_keys_and_costs() -> None:
    drf_view = view(with_rate(FixedWindowThrottle, "4/h", key="arg:pk", cost=2))
    for pk in (1, 2):
        assert statuses(drf_view, 3, pk=pk) == [200, 200, 429]
    drf_view = view(with_rate(FixedWindowThrottle, "1/h", key=staticmethod(lambda request: None)))
    assert statuses(drf_view, 3) == [200] * 3


def test_views_of_one_class_share_and_others_do_not() -> None:
    throttle = with_rate(FixedWindowThrottle, "2/h")
    assert statuses(view(throttle), 1) + statuses(view(throttle), 2) == [200, 200, 429]

    class Other(FixedWindowThrottle):
        rate = "2/h"

    assert statuses(view(Other), 3) == [200, 200, 429]


def test_scopes_of_views(rates: Any) -> None:
    rates(search="2/h", upload="1/h", free=None)
    search = view(FixedWindowThrottle, throttle_scope="search")
    upload = view(FixedWindowThrottle, throttle_scope="upload")
    assert statuses(search, 3) == [200, 200, 429]
    assert statuses(upload, 2) == [200, 429]
    assert statuses(view(FixedWindowThrottle, throttle_scope="free"), 3) == [200] * 3
    assert statuses(view(FixedWindowThrottle), 3) == [200] * 3
    assert "RateLimit" not in ask(view(FixedWindowThrottle))
    rates(search="5/h", upload=None)
    assert statuses(upload, 2) == [200, 200]


def test_a_scope_of_the_throttle(rates: Any) -> None:
    rates(burst="1/h burst=1")

    class Burst(LeakyBucketThrottle):
        scope = "burst"

    assert statuses(view(Burst), 3) == [200, 200, 429]
    with pytest.raises(ImproperlyConfigured, match="no rate for the scope 'gone'"):
        ask(view(FixedWindowThrottle, throttle_scope="gone"))


def test_a_wrong_rate_is_an_error() -> None:
    for base, rate in (
        (LeakyBucketThrottle, "fast"),
        (FixedWindowThrottle, "5/h burst=2"),
        (ConcurrencyThrottle, "5/h"),
    ):
        with pytest.raises(ImproperlyConfigured, match="The rate of the throttle"):
            ask(view(with_rate(base, rate)))


def test_responses_report_all_throttles() -> None:
    drf_view = view(
        with_rate(FixedWindowThrottle, "5/h", scope="wide"), with_rate(SlidingWindowThrottle, "2/365d", scope="tight")
    )
    passed = ask(drf_view)
    assert passed["RateLimit-Policy"].split(";")[0] == '"tight"'
    assert passed["RateLimit"].count(";r=") == 2
    assert passed["X-RateLimit-Limit"] == "2"


def test_a_throttle_bounds_concurrent_requests() -> None:
    inside, go_on = threading.Barrier(3), threading.Event()

    class Slow(Quiet):
        def get(self, request: Request, **kwargs: Any) -> Response:
            if "wait" in kwargs:
                inside.wait(20)
                go_on.wait(20)
            if "fail" in kwargs:
                raise ZeroDivisionError
            return Response("done")

    throttle = with_rate(ConcurrencyThrottle, "2")
    drf_view = view(throttle, base=Slow)
    threads = [threading.Thread(target=ask, args=(drf_view,), kwargs={"wait": True}) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(20)
    assert statuses(drf_view, 2) == [429, 429]
    go_on.set()
    for thread in threads:
        thread.join()
    refusing = view(throttle, with_rate(FixedWindowThrottle, "1/h"), base=Slow)
    assert statuses(refusing, 5) == [200] + [429] * 4
    for _ in range(4):
        with pytest.raises(ZeroDivisionError):
            ask(drf_view, fail=True)
    assert statuses(drf_view, 4) == [200] * 4


def test_decorators_on_views_of_drf() -> None:
    @limit_count(1, per="1h")
    @api_view(["GET"])
    @permission_classes([AllowAny])
    def outside(request: Request) -> Response:
        return Response("done")

    @api_view(["GET"])
    @permission_classes([AllowAny])
    @limit_count(1, per="1h", key="user_or_ip")
    def inside(request: Request) -> Response:
        return Response("done")

    class ByMethod(Quiet):
        @limit_count(1, per="1h", key="user_or_ip")
        def get(self, request: Request, **kwargs: Any) -> Response:
            return Response("done")

    @method_decorator(limit_count(1, per="1h"), name="dispatch")
    class ByDispatch(Quiet):
        pass

    for drf_view in (outside, inside, ByMethod.as_view(), ByDispatch.as_view()):
        assert statuses(drf_view, 2) == [200, 429]


class TokenAuthentication(BaseAuthentication):
    """The token is the primary key of the user. The user 7 has all permissions."""

    def authenticate(self, request: Request) -> tuple[User, str] | None:
        token = request.headers.get("X-Token", "")
        if token == "wrong":
            raise AuthenticationFailed("This token is wrong.")
        return (User(pk=int(token), is_superuser=token == "7"), token) if token else None

    def authenticate_header(self, request: Request) -> str:
        return "Token"


class ByToken(ViewSet):
    authentication_classes = (TokenAuthentication, SessionAuthentication)
    permission_classes = (AllowAny,)

    def list(self, request: Request, **kwargs: Any) -> Response:
        return Response(request.user.pk)

    def create(self, request: Request) -> Response:
        return Response({**request.data, "user": request.user.pk})


class ByTokenOfAction(ByToken):
    authentication_classes = ()

    def get_authenticators(self) -> list[Any]:
        action = self.action_map[self.request.method.lower()]
        return [TokenAuthentication()] if (action, self.kwargs) == ("list", {"page": 1}) else []


per_user = limit_count(1, per="1h", key="user")


@per_user
@api_view(["GET"])
@authentication_classes([TokenAuthentication])
@permission_classes([AllowAny])
def above(request: Request) -> Response:
    return Response(request.user.pk)


@method_decorator(per_user, name="dispatch")
class OnDispatch(ByToken):
    pass


urls = [
    path("above/", above),
    path("dispatch/", OnDispatch.as_view({"get": "list"})),
    path("middleware/", ByToken.as_view({"get": "list", "post": "create"})),
    path("action/<int:page>/", per_user(ByTokenOfAction.as_view({"get": "list"}))),
    path("exempt/", limit_count(1, per="1h", exempt_permissions=["auth.view_user"])(ByToken.as_view({"get": "list"}))),
    path("plain/", per_user(lambda request: HttpResponse())),
]
RULE = {"name": "all", "algorithm": "fixed_window", "limit": 1, "window": "1h", "key": "user", "path": "/middleware/*"}


@pytest.fixture
def behind_urls(settings: Any) -> Iterator[None]:
    """The views under their URLs, on a site without `AuthenticationMiddleware`."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"RULES": [RULE]}}
    with serving(settings, urls, ["resty_django.limits.middleware.LimitMiddleware"]):
        yield
    registry.forget_policies()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("behind_urls")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("url", ["/above/", "/dispatch/", "/middleware/", "/action/1/"])
def test_users_that_the_view_authenticates_count_separately(url: str, asynchronous: bool) -> None:
    def ask(**headers: str) -> list[int]:
        return Asking(asynchronous).statuses(url, 2, headers=headers)

    assert ask(x_token="1") == ask(x_token="2") == ask() == [200, 429]
    assert ask(x_token="1") == ask(x_token="wrong") == [429, 429]


def test_async_authentication_classes() -> None:
    class AsyncTokenAuthentication(TokenAuthentication):
        async def authenticate(self, request: Request) -> tuple[User, str] | None:  # type: ignore[override]
            return super().authenticate(request)

    request = factory.get("/", headers={"x-token": "5"})
    func = type("AnAsyncView", (ByToken,), {"authentication_classes": (AsyncTokenAuthentication,)}).as_view(
        {"get": "list"}
    )
    request.resolver_match = ResolverMatch(func, (), {})
    assert keys.make("user")(request) == "5"


@pytest.mark.django_db
@pytest.mark.usefixtures("behind_urls")
def test_a_view_gets_the_request_as_if_nothing_had_authenticated_before(settings: Any) -> None:
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        *settings.MIDDLEWARE,
    ]
    client = Client(enforce_csrf_checks=True)
    assert client.get("/middleware/", headers={"x-token": "wrong"}).json() == {"detail": "This token is wrong."}
    user = User.objects.create_user("ann")
    client.force_login(user)
    refused = client.post("/middleware/", {"a": 1}, "application/json")
    assert (refused.status_code, refused.json()["detail"][:11]) == (403, "CSRF Failed")
    shdicts["limits"].flush_all()
    client.cookies["csrftoken"] = "a" * 32
    passed = client.post("/middleware/", {"a": 1}, "application/json", headers={"x-csrftoken": "a" * 32})
    assert passed.json() == {"a": 1, "user": user.pk}
    assert client.post("/middleware/", {"a": 1}, "application/json").status_code == 429


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("behind_urls")
def test_permissions_of_users_that_the_view_authenticates() -> None:
    for asking in (Asking(False), Asking(True)):
        assert asking.statuses("/exempt/", 3, headers={"x-token": "7"}) == [200, 200, 200]
    assert Asking(False).statuses("/exempt/", 2, headers={"x-token": "1"}) == [200, 429]


@pytest.mark.django_db
@pytest.mark.usefixtures("behind_urls")
def test_a_key_that_needs_a_user_names_the_missing_middleware() -> None:
    with pytest.raises(ImproperlyConfigured, match="AuthenticationMiddleware"):
        Client().get("/plain/")


def test_a_slot_of_a_decorated_view_is_held_until_its_response_is_closed() -> None:
    conn = Concurrency(1, prefix="drf:", name="conn")
    one = limit(conn)(Quiet.as_view())
    response = one(factory.get("/", REMOTE_ADDR="192.0.2.1"))
    assert statuses(one, 1) == [429]
    response.render()
    response.close()
    assert statuses(one, 3) == [200] * 3
    assert statuses(limit_conn(1)(Quiet.as_view()), 3) == [200] * 3


def test_drf_is_imported_by_its_own_module_alone() -> None:
    code = (
        "import os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'x'\n"
        "from django.conf import settings; settings.configure(INSTALLED_APPS=['resty_django', 'resty_django.limits'])\n"
        "import django; django.setup()\n"
        "import resty_django.limits.decorators, resty_django.limits.middleware\n"
        "print([name for name in sys.modules if name.startswith('rest_framework')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("first", ["rest_framework.views", "resty_django.limits.throttling"])
def test_the_throttles_can_be_the_default_whichever_module_is_imported_first(first: str) -> None:
    """`rest_framework.views` imports the default throttles while it is being imported itself."""
    path = "resty_django.limits.throttling.SlidingWindowThrottle"
    code = (
        "import importlib\n"
        "from django.conf import settings\n"
        f"settings.configure(REST_FRAMEWORK={{'DEFAULT_THROTTLE_CLASSES': [{path!r}]}})\n"
        f"importlib.import_module({first!r})\n"
        "from rest_framework.views import APIView\n"
        "print(APIView.throttle_classes[0].__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "SlidingWindowThrottle"
