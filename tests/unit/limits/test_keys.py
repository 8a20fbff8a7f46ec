"""Keys of requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.callers import keys

factory = RequestFactory()


def key(spec: Any, request: Any = None, **kwargs: Any) -> str | None:
    request = request if request is not None else factory.get("/a/b")
    return keys.make(spec)(request, kwargs)


def user(pk: Any) -> Any:
    request = factory.get("/a/b")
    request.user = User(pk=pk) if pk is not None else AnonymousUser()
    return request


def tenant(request: Any) -> str:
    return str(request.META.get("HTTP_X_TENANT", ""))


def nobody(request: Any) -> None:
    return None


def test_each_word_reads_its_part_of_the_request() -> None:
    match = SimpleNamespace(view_name="shop:pay", _func_path="shop.views.pay", kwargs={"pk": 9})
    request = factory.get("/a/b", headers={"X-Api-Key": "secret"})
    request.resolver_match = match  # type: ignore[assignment]
    assert key("ip", request) == "127.0.0.1"
    assert key("header:X-Api-Key", request) == "secret"
    assert key("header:x-api-key", request) == "secret"
    assert key("path", request) == "/a/b"
    assert key("view", request) == "shop:pay"
    assert key("all", request) == "all"
    assert key("arg:pk", request, pk=7) == "7"
    assert keys.make("arg:pk")(request) == "9"
    assert key("header:Content-Type", factory.post("/", b"x", content_type="text/x")) == "text/x"
    match.view_name = ""
    assert key("view", request) == "shop.views.pay"


def test_keys_of_users_and_visitors_differ() -> None:
    assert key("user", user(5)) == "5"
    assert key("user", user(None)) == "-"
    assert key("user_or_ip", user(5)) == "user:5"
    assert key("user_or_ip", user(None)) == "ip:127.0.0.1"
    assert key("user|header:X|ip", user(None)) == "ip:127.0.0.1"
    assert key("user|header:X", user(None)) == "-"


def test_a_user_whose_key_looks_like_an_address_is_not_that_address() -> None:
    assert key("user_or_ip", user("127.0.0.1")) != key("user_or_ip", user(None))


def test_what_is_missing_is_one_key_and_nobody_can_pose_as_it() -> None:
    assert key("header:X-Api-Key") == "-"
    assert key("arg:pk") == "-"
    request = factory.get("/", headers={"X-Api-Key": "-"})
    assert key("header:X-Api-Key", request) != "-"
    assert key("ip", SimpleNamespace(META={"REMOTE_ADDR": ""})) == "-"
    assert key("view") == "-"


def test_combinations() -> None:
    request = factory.get("/a/b", headers={"X-Tenant": "blue"})
    assert key("ip+path", request) == "127.0.0.1|/a/b"
    assert key(("ip", "path"), request) == "127.0.0.1|/a/b"
    assert key(["ip", tenant], request) == "127.0.0.1|blue"
    assert key("user_or_ip+arg:pk", user(5), pk=3) == "user:5|3"
    assert key(("ip", nobody), request) is None


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_different_values_are_different_keys(first: tuple[str, str], second: tuple[str, str]) -> None:
    two_keys = [key("arg:a+arg:b", a=a, b=b) for a, b in (first, second)]
    assert (two_keys[0] == two_keys[1]) == (first == second)


@given(st.text())
def test_a_key_is_short_and_printable(text: str) -> None:
    escaped = keys.plain(text)
    assert 1 <= len(escaped) <= 64
    assert escaped.isprintable()
    assert "|" not in escaped


def test_long_values_become_a_hash() -> None:
    long = "x" * 1_000_000
    assert len(keys.plain(long)) == 33
    assert keys.plain(long) != keys.plain(long + "x")
    assert keys.plain(keys.plain(long)) != keys.plain(long)


def test_callables_and_dotted_paths() -> None:
    request = factory.get("/", headers={"X-Tenant": "blue"})
    assert key(tenant, request) == "blue"
    assert key(lambda request: 7, request) == "7"
    assert key(nobody, request) is None
    assert key("tests.unit.limits.test_keys.tenant", request) == "blue"


def test_a_dotted_path_is_imported_with_the_first_request() -> None:
    missing_key = keys.make("not_there.at_all")
    with pytest.raises(ImportError):
        missing_key(factory.get("/"), {})


def test_operators_may_not_name_code() -> None:
    with pytest.raises(ValueError, match="is not a key"):
        keys.parse("os.getcwd")
    assert keys.parse("user_or_ip+path").text == "user_or_ip+path"


@pytest.mark.parametrize("spec", ["", "ipp", "ip+", "header:", "arg", "user|", "ip path", "session:x"])
def test_a_wrong_key_is_an_error(spec: str) -> None:
    with pytest.raises(ValueError, match="is not a key of a limit"):
        keys.make(spec)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(ValueError, match='Did you mean "session"'):
        keys.make("sesion")


@pytest.mark.parametrize("spec", [(), []])
def test_an_empty_key_is_an_error(spec: Any) -> None:
    with pytest.raises(ValueError, match='Use "all"'):
        keys.make(spec)


def test_a_key_of_another_type_is_an_error() -> None:
    with pytest.raises(TypeError, match="strings and callables"):
        keys.make(("ip", 7))  # type: ignore[arg-type]


def test_keys_know_what_they_need() -> None:
    assert keys.make("user_or_ip").needs_user
    assert keys.make("session|ip").needs_session
    assert not keys.make("ip+path").needs_user
    assert keys.make(keys.make("user")).needs_user


def test_keys_of_two_lambdas_are_told_apart() -> None:
    first = keys.make(lambda request: "a")
    second = keys.make(lambda request: "a")
    assert first.text != second.text
