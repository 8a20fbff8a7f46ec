"""The login guard: log-ins are refused after too many failed ones, before a password is hashed."""

from __future__ import annotations

import asyncio
import base64
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import aauthenticate, alogin, authenticate, get_user_model
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core.checks import run_checks
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory, override_settings
from django.urls import path
from rest_framework.authentication import BasicAuthentication
from rest_framework.response import Response
from rest_framework.views import APIView

from resty_django.conf import all_problems
from resty_django.limits import StoreFailed, bans, request_refused
from resty_django.limits.bans.registry import dictionary
from resty_django.limits.callers.names import normalized
from resty_django.limits.login.guard import name_in
from resty_django.limits.testing import FrozenClock, frozen_limits
from tests.integration.limits.view_tools import heard, on_dead_redis

GUARD = "resty_django.limits.login.LoginGuard"
MODEL = "django.contrib.auth.backends.ModelBackend"
MIDDLEWARE = "resty_django.limits.login.LoginGuardMiddleware"
ADMIN = "/admin/login/"
pytestmark = pytest.mark.django_db


class Basic(APIView):
    authentication_classes = (BasicAuthentication,)

    def get(self, request: Any) -> Response:
        return Response(request.user.get_username())


async def log_in(request: HttpRequest) -> HttpResponse:
    user = await aauthenticate(request, username=request.GET["name"], password=request.GET["password"])
    if user is None:
        return HttpResponse("wrong", status=403)
    await alogin(request, user)
    return HttpResponse("welcome")


def urls() -> list[Any]:
    from django.contrib import admin

    return [path("admin/", admin.site.urls), path("basic/", Basic.as_view()), path("async/", log_in)]


class Hasher(MD5PasswordHasher):
    """Counts the passwords that are hashed."""

    hashed = 0

    def encode(self, password: str, salt: str) -> str:
        type(self).hashed += 1
        return super().encode(password, salt)


@pytest.fixture
def guarded(settings: Any) -> None:
    """A site with the guard."""
    settings.AUTHENTICATION_BACKENDS = [GUARD, MODEL]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.PASSWORD_HASHERS = [f"{__name__}.Hasher"]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": urls()})


@pytest.fixture
def clock(guarded: None) -> Iterator[FrozenClock]:
    with frozen_limits() as clock:
        yield clock


@pytest.fixture
def alice() -> Any:
    return get_user_model().objects.create_user("alice", "alice@example.com", "right", is_staff=True)


def attempt(name: str = "alice", password: str = "wrong", ip: str = "192.0.2.1", **options: Any) -> Any:  # noqa: S107
    return Client(REMOTE_ADDR=ip, **options).post(ADMIN, {"username": name, "password": password})


def statuses(count: int, *args: Any, **kwargs: Any) -> list[int]:
    return [attempt(*args, **kwargs).status_code for _ in range(count)]


def test_the_admin_log_in_is_refused_before_the_password_is_hashed(clock: FrozenClock, alice: Any) -> None:
    assert statuses(5) == [200] * 5
    hashed = Hasher.hashed
    response = attempt(password="right")
    assert (response.status_code, response["Retry-After"]) == (429, "900")
    assert "Too many requests" in response.text
    assert response["Cache-Control"] == "no-store"
    assert Hasher.hashed == hashed
    assert attempt(password="right", ip="192.0.2.2").status_code == 302
    clock.tick(900)
    assert attempt(password="right").status_code == 302


def test_force_login_of_the_test_client(guarded: None, alice: Any) -> None:
    client = Client()
    client.force_login(alice)
    assert client.get("/admin/password_change/").status_code == 200
    assert alice.has_perm("auth.add_user") is False


def test_bans_grow(clock: FrozenClock, alice: Any) -> None:
    for seconds in (900, 1800, 3600):
        assert statuses(6) == [200] * 5 + [429]
        clock.tick(seconds - 1)
        assert attempt(password="right").status_code == 429
        clock.tick(1)


def test_refused_log_ins_do_not_count(clock: FrozenClock, alice: Any) -> None:
    assert statuses(40)[5:] == [429] * 35
    assert statuses(1, "bob") == [200]
    assert {ban.limit for ban in bans.current_bans()} == {"login-address-and-name"}


def test_an_address_is_banned_for_all_names(clock: FrozenClock, alice: Any) -> None:
    assert [attempt(f"name{number}").status_code for number in range(31)] == [200] * 30 + [429]
    assert attempt(password="right").status_code == 429
    assert attempt(password="right", ip="192.0.2.2").status_code == 302


def test_a_name_is_banned_for_all_addresses(clock: FrozenClock, alice: Any) -> None:
    answers = [attempt(ip=f"192.0.2.{number}").status_code for number in range(101)]
    assert answers == [200] * 100 + [429]
    assert attempt("bob").status_code == 200


def test_names_that_exist_and_others_are_treated_alike(clock: FrozenClock, alice: Any) -> None:
    known = [(response.status_code, response.headers.get("Retry-After")) for response in map(attempt, ["alice"] * 7)]
    unknown = [(response.status_code, response.headers.get("Retry-After")) for response in map(attempt, ["nobody"] * 7)]
    assert known == unknown


SPELLINGS = [
    *("ALICE", " alice ", "\uff41lice", "alicé", "Àlicë", "al\u0131ce", "ali\u0301ce", "ali\u200dce", "alĪce"),
    *("ⓐlicɇ", "al🄸ce"),
]
"""Some of the names with which a database may find the user `alice`."""


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_a_name_are_counted_together(clock: FrozenClock, alice: Any, name: str) -> None:
    assert statuses(5, name) == [200] * 5
    assert attempt(password="right").status_code == 429
    clock.tick(900)
    bans.add(f"192.0.2.1|{name}", for_="1h", limit="login-address-and-name")
    assert attempt(password="right").status_code == 429
    assert bans.lift("192.0.2.1|alice") == 1
    bans.add("Alice", for_="1h", limit="login-name")
    assert attempt(name).status_code == 429
    assert bans.lift(name, "login-name") == 1
    assert attempt(password="right").status_code == 302


def test_each_failure_may_have_another_spelling(clock: FrozenClock, alice: Any) -> None:
    assert [attempt(name).status_code for name in SPELLINGS] == [200] * 5 + [429] * (len(SPELLINGS) - 5)


@pytest.mark.parametrize(("victim", "attacker"), [("alice", "alicé"), ("alicé", "alice")])
def test_success_with_a_similar_name_resets_nothing_of_another_user(
    clock: FrozenClock, victim: str, attacker: str
) -> None:
    """In a database that treats the names as different, they may belong to two users."""
    users = get_user_model().objects
    if connection.vendor == "mysql":
        pytest.skip("the names are one")
    users.create_user(victim, password="right", is_staff=True)
    users.create_user(attacker, password="mine", is_staff=True)
    assert statuses(4, victim) == [200] * 4
    assert attempt(attacker, "mine").status_code == 302
    assert statuses(2, victim) == [200, 429]


def test_a_name_with_accents_is_reset_like_others(clock: FrozenClock) -> None:
    get_user_model().objects.create_user("françois", password="right", is_staff=True)
    for _ in range(3):
        assert statuses(4, "FRANÇOIS") == [200] * 4
        assert attempt("françois", "right").status_code == 302


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße", "STRASE"),
        ("Ærø", "aero"),
        ("Łukasz", "lukasz"),
        ("Σίσυφος", "ΣΙΣΥΦΟΣ"),
        ("カガ", "かか"),
        ("Сергей", "сергеи"),
        ("user١", "user1"),
        ("user⓵", "user1"),
        ("ali\x01ce\u0903", "alice"),
        ("İstanbul", "ıstanbul"),
        ("a😀", "a😁"),
        ("한글", "\u1112\u1161\u11ab\u1100\u1173\u11af"),
    ],
)
def test_names_that_databases_treat_as_equal(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)
    assert normalized(normalized(one)) == normalized(one)


def test_different_names_have_different_keys() -> None:
    names = [
        "alice",
        "alise",
        "alice1",
        "a.lice",
        "al ice",
        "jessica",
        "jesica",
        "李一",
        "李二",
        "राम",
        "안녕",
        "иван",
        "-",
        "😀",
    ]
    assert len({normalized(name) for name in names}) == len(names)


@pytest.mark.db
@pytest.mark.skipif(connection.vendor != "mysql", reason="of MariaDB and MySQL alone")
@pytest.mark.parametrize(
    ("collation", "most"), [("general_ci", 0), ("unicode_ci", 40), ("unicode_520_ci", 70), ("uca1400_ai_ci", 120)]
)
def test_characters_that_collations_treat_as_ascii_ones(collation: str, most: int) -> None:
    """All characters of the BMP that equal one of ASCII, or nothing. Letters in use are among them, and few rare ones
    not: of phonetics and medieval texts, and half digits.
    """
    sql = (
        "SELECT seq, HEX(WEIGHT_STRING(CONVERT(CHAR(seq USING utf32) USING utf8mb4) "
        f"COLLATE utf8mb4_{collation})) FROM seq_1_to_65535 WHERE seq NOT BETWEEN 55296 AND 57343"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql)
        weights = {chr(number): weight for number, weight in cursor.fetchall()}
    letters = {weights[char]: char for char in "abcdefghijklmnopqrstuvwxyz0123456789@.+-_"} | {"": ""}
    equal = [char for char in weights if weights[char] in letters and unicodedata.category(char) not in ("Cn", "Co")]
    assert len(equal) > 200
    apart = [char for char in equal if normalized(f"x{char}x") != normalized(f"x{letters[weights[char]]}x")]
    assert len(apart) <= most, apart
    assert [char for char in apart if char < "\u0180"] == []


@pytest.mark.db
def test_a_user_that_the_database_finds_is_counted_once(clock: FrozenClock, alice: Any) -> None:
    """With the collation that the tests' database has."""
    found = [name for name in SPELLINGS if get_user_model().objects.filter(username=name).exists()]
    assert len(found) >= (4 if connection.vendor == "mysql" else 0)
    assert [attempt(name).status_code for name in ["alice", *found, *["alice"] * 6]][5] == 429


def test_hostile_names_are_short_keys() -> None:
    assert normalized("a" * 10**6) == normalized("a" * 10**6 + "b")
    for name in ("a" * 10**6, "a|b", "\x00", "\ud800", "\u202e", "~", "\ufdfa" * 1000):
        key = normalized(name)
        assert len(key) < 200
        assert "|" not in key
        assert key.isprintable()
    assert normalized("  ") == name_in({"password": "x"}) == ""
    assert name_in({"username": 7}) == "7"
    assert name_in({"email": "Bob@Example.com"}) == "Bob@Example.com"


def test_a_log_in_with_hostile_names(clock: FrozenClock) -> None:
    for name in ("a" * 10**5, "\x00", "%s|{}", ""):
        assert attempt(name).status_code == 200


def test_success_resets_the_count_of_the_name_but_not_of_the_address(clock: FrozenClock, alice: Any) -> None:
    for _ in range(6):
        assert statuses(4) == [200] * 4
        assert attempt(password="right").status_code == 302
    assert statuses(4, "other") == [200] * 4
    assert statuses(3, "another") == [200, 200, 429]
    assert {ban.limit for ban in bans.current_bans()} == {"login-address"}


def test_spoofed_headers_change_nothing(clock: FrozenClock, alice: Any) -> None:
    answers = [attempt(HTTP_X_FORWARDED_FOR=f"198.51.100.{number}").status_code for number in range(6)]
    assert answers == [200] * 5 + [429]


def test_the_client_behind_a_trusted_proxy(clock: FrozenClock, alice: Any) -> None:
    with override_settings(RESTY_DJANGO={"LIMITS": {"PROXIES": ["10.0.0.0/8"]}}):
        for _ in range(6):
            response = attempt(ip="10.0.0.1", HTTP_X_FORWARDED_FOR="198.51.100.1")
        assert response.status_code == 429
        assert attempt(ip="10.0.0.1", HTTP_X_FORWARDED_FOR="198.51.100.2").status_code == 200


def test_exempt_networks(clock: FrozenClock, alice: Any) -> None:
    with override_settings(RESTY_DJANGO={"LIMITS": {"EXEMPT_NETWORKS": ["192.0.2.0/24"]}}):
        assert statuses(10) == [200] * 10


def test_basic_authentication(clock: FrozenClock, alice: Any) -> None:
    def get(password: str) -> Any:
        token = base64.b64encode(f"alice:{password}".encode()).decode()
        return Client(HTTP_AUTHORIZATION=f"Basic {token}").get("/basic/", HTTP_ACCEPT="application/json")

    assert get("right").json() == "alice"
    assert [get("wrong").status_code for _ in range(6)] == [401] * 5 + [429]
    response = get("right")
    assert response.json()["violated-policies"] == ["login"]
    assert response["Retry-After"] == "900"


async def arefused(client: AsyncClient) -> list[int]:
    return [(await client.get("/async/?name=alice&password=wrong")).status_code for _ in range(6)]


@pytest.mark.django_db(transaction=True)
async def test_async_log_ins(clock: FrozenClock) -> None:
    await get_user_model().objects.acreate_user("alice", password="right")
    client = AsyncClient()
    for _ in range(4):
        await client.get("/async/?name=alice&password=wrong")
    assert (await client.get("/async/?name=alice&password=right")).status_code == 200
    assert await arefused(client) == [403] * 5 + [429]
    assert (await client.get("/async/?name=alice&password=right")).status_code == 429


@pytest.mark.django_db(transaction=True)
async def test_log_ins_without_a_request_count_by_name(clock: FrozenClock) -> None:
    with override_settings(RESTY_DJANGO={"LIMITS": {"LOGIN": {"NAME": "3/h"}}}):
        await get_user_model().objects.acreate_user("alice", password="right")
        assert await aauthenticate(username="alice", password="right") is not None
        for _ in range(3):
            assert await aauthenticate(username="alice", password="wrong") is None
        hashed = Hasher.hashed
        assert await aauthenticate(username="alice", password="right") is None
        assert await asyncio.to_thread(authenticate, username="alice", password="right") is None
        assert Hasher.hashed == hashed
        assert bans.lift("alice") == 1
        assert await aauthenticate(username="alice", password="right") is not None


def test_nothing_is_written_to_the_database(
    clock: FrozenClock, alice: Any, django_assert_num_queries: Any, rf: RequestFactory
) -> None:
    request = rf.post(ADMIN)
    with django_assert_num_queries(1) as queries:
        authenticate(request, username="alice", password="wrong")
    assert queries.captured_queries[0]["sql"].startswith("SELECT")
    for _ in range(4):
        authenticate(request, username="alice", password="wrong")
    with django_assert_num_queries(0):
        assert authenticate(request, username="alice", password="right") is None


def test_a_refusal_is_announced(clock: FrozenClock, alice: Any) -> None:
    with heard(request_refused) as signals:
        statuses(6)
    (sent,) = signals
    assert (sent["request"].path, sent["name"], sent["key"]) == (ADMIN, "login-address-and-name", "192.0.2.1|alice")


def test_scopes_can_be_turned_off(clock: FrozenClock, alice: Any) -> None:
    off = {"ADDRESS_AND_NAME": None, "ADDRESS": "2/h", "NAME": None, "BAN": "1h", "MAX_BAN": "1h"}
    with override_settings(RESTY_DJANGO={"LIMITS": {"LOGIN": off}}):
        assert statuses(3) == [200, 200, 429]
        assert attempt()["Retry-After"] == "3600"


def test_a_site_without_the_guard_is_not_affected(clock: FrozenClock, alice: Any) -> None:
    with override_settings(AUTHENTICATION_BACKENDS=[MODEL]):
        assert statuses(10) == [200] * 10
    assert statuses(1) == [200]


@pytest.mark.usefixtures("bans_store", "guarded")
def test_each_engine(alice: Any) -> None:
    dictionary().flush_all()
    assert statuses(6) == [200] * 5 + [429]
    assert bans.lift("192.0.2.1|alice") == 1
    assert attempt(password="right").status_code == 302


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize(("on_error", "expected"), [("open", 302), ("closed", 429)])
def test_a_store_that_is_down(alice: Any, on_error: str, expected: int) -> None:
    with on_dead_redis("limits", "bans", ON_ERROR=on_error):
        statuses(6)
        assert attempt(password="right").status_code == expected
    with on_dead_redis("limits", "bans", ON_ERROR="raise"), pytest.raises(StoreFailed):
        attempt()


def test_wrong_settings(settings: Any) -> None:
    settings.RESTY_DJANGO = {
        "LIMITS": {"LOGIN": {"ADRESS": "5/h", "NAME": "often", "BAN": "1d", "MAX_BAN": "1h"}},
    }
    messages = " ".join(problem.message for problem in all_problems())
    assert 'RESTY_DJANGO["LIMITS"]["LOGIN"]["ADRESS"]' in messages
    assert "ADDRESS" in messages
    assert "must be a number of failed log-ins in a time, such as \"5/15m\", not 'often'" in messages
    settings.RESTY_DJANGO = {"LIMITS": {"LOGIN": {"BAN": "2d"}}}
    (problem,) = all_problems()
    assert 'RESTY_DJANGO["LIMITS"]["LOGIN"]["MAX_BAN"] must not be less than BAN' in problem.message


@pytest.mark.parametrize(
    ("backends", "middleware", "ids"),
    [
        ([GUARD, MODEL], [MIDDLEWARE], set()),
        ([MODEL], [], set()),
        ([GUARD, MODEL], [], {"resty_limits.W002"}),
        ([MODEL, GUARD], [MIDDLEWARE], {"resty_limits.E002"}),
        ([MODEL], [MIDDLEWARE], {"resty_limits.W003"}),
    ],
)
def test_checks(settings: Any, backends: list[str], middleware: list[str], ids: set[str]) -> None:
    settings.AUTHENTICATION_BACKENDS = backends
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *middleware]
    assert {message.id for message in run_checks() if str(message.id).startswith("resty_limits.")} == ids


async def test_the_middleware_is_async_on_an_async_site() -> None:
    from resty_django.limits.login import LoginGuardMiddleware

    async def get_response(request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")

    response: Any = LoginGuardMiddleware(get_response)(AsyncRequestFactory().get("/"))
    assert (await response).content == b"page"
