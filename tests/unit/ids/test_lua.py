"""Lua rules: the functions that a script of id_server has, its result, and the library that was rewritten."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resty_django.ids.engine.lua.script import MAX_EXACT, MAX_SCRIPT_BYTES, LuaRule
from resty_django.ids.engine.wall_clock import Moment
from resty_django.ids.errors import BadRule, BadSalt, Exhausted, RuleFailed, Unavailable
from tests.threads import together

pytest.importorskip("lupa.lua51")

NOW = Moment(2024, 2, 3, 4, 5, 6, 5, 34)
BOUNDS = """
function min_counter() return 0 end
function max_counter() return 999999 end
function reset_seconds() return 86400 end
"""
ORDER = (
    BOUNDS
    + """
-- O, the date, six digits
function create_id(counter, now, salt)
  local date = string.format("%02d%02d%02d", now:year() % 100, now:month(), now:day())
  return "O" .. date .. string.format("%06d", counter:generate_counter())
end
"""
)
TASK = (
    BOUNDS
    + """
function create_id(counter, now, salt)
  local date = string.format("%02d%02d%02d", now:year() % 100, now:month(), now:day())
  return string.format("O%s%s%06d", salt, date, counter:generate_counter())
end
"""
)


def rule(body: str, **options: int) -> LuaRule:
    """A rule whose create_id has this body."""
    return LuaRule(f"{BOUNDS}\nfunction create_id(counter, now, salt)\n{body}\nend", name="it", **options)


def made(body: str, salt: str = "", take: Callable[[], int] = lambda: 7, **options: int) -> str:
    return rule(body, **options).create_id(take, NOW, salt)


# The bundled examples


def test_order_id_returns_the_date_and_six_digits() -> None:
    order = LuaRule(ORDER, name="order_id")
    numbers = count()
    assert (order.min_counter, order.max_counter, order.reset_seconds) == (0, 999_999, 86_400)
    assert [order.create_id(numbers.__next__, NOW, "x") for _ in range(2)] == ["O240203000000", "O240203000001"]


def test_task_puts_the_salt_after_the_letter() -> None:
    assert LuaRule(TASK).create_id(lambda: 123_456, NOW, "A7") == "OA7240203123456"


# The environment of a script


def test_now_has_six_fields() -> None:
    text = made(
        "return table.concat({now:year(), now:month(), now:day(), now:hour(), now:minute(), now:second()}, ' ')"
    )
    assert text == "2024 2 3 4 5 6"


def test_the_counter_may_be_asked_several_times_or_never() -> None:
    numbers = count(5)
    body = "local a = counter:generate_counter() local b = counter:generate_counter() return a .. '-' .. b"
    assert made(body, take=numbers.__next__) == "5-6"
    assert made("return 'fixed'", take=numbers.__next__) == "fixed"
    assert next(numbers) == 7


def test_a_salt_arrives_unchanged() -> None:
    assert made("return #salt .. salt", salt="Größe") == "7Größe"
    assert made("return #salt", salt="a\0b") == "3"


@pytest.mark.parametrize(("salt", "says"), [("\ud800", "not valid Unicode"), ("s" * 4097, "4097 bytes")])
def test_a_salt_that_cannot_be_handed_over_is_refused(salt: str, says: str) -> None:
    with pytest.raises(BadSalt, match=says):
        made("return 'x'", salt=salt)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("7", "7"),
        ("7.0", "7"),
        ("-3", "-3"),
        ("1.5", "1.5"),
        ("1/3", "0.33333333333333"),
        ("20240203 * 1000000 + 12", "20240203000012"),
        ("2024020304 * 1000000 + 12", "2024020304000012"),
    ],
)
def test_a_number_becomes_text_without_losing_digits(number: str, text: str) -> None:
    assert made(f"return {number}") == text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return nil", "returned nil"),
        ("return", "returned nil"),
        ("return false", "returned a boolean"),
        ("return {}", "returned a table"),
        ("return print", "returned a function"),
        ("return ''", "empty"),
        ("return 0/0", "no real number"),
        ("return 1/0", "no real number"),
        ("return 2^60", "too big to be exact"),
        ("return ('x'):rep(256)", "more than 255"),
        ("return ('x'):rep(5000)", "more than 255"),
        (r"return 'a\0b'", "control character"),
        (r"return 'a\nb'", "control character"),
        (r"return 'a\127'", "control character"),
        (r"return '\194\133'", "control character"),
        (r"return '\255'", "not UTF-8"),
        (r"return '\237\160\128'", "not UTF-8"),
    ],
)
def test_results_other_than_ids_are_refused(body: str, says: str) -> None:
    with pytest.raises(RuleFailed, match=says):
        made(body)


def test_255_characters_of_several_bytes_pass() -> None:
    assert made("return ('ß'):rep(255)") == "ß" * 255
    with pytest.raises(RuleFailed, match="more than 255"):
        made("return ('ß'):rep(256)")


def test_an_error_names_rule_and_line() -> None:
    with pytest.raises(RuleFailed, match=r"Lua rule it: line 8: no luck"):
        made("local x = 1\nerror('no luck')")
    with pytest.raises(RuleFailed, match=r"it: line 7: malformed pattern \(missing ']'\)"):
        made("local x = string.find('a', '[a')\nreturn x")
    with pytest.raises(RuleFailed, match="a table as its error"):
        made("error({})")


def test_globals_stay_in_one_rule_and_do_not_cross_to_another() -> None:
    body = "seen = (seen or 0) + 1 string.seen = seen return seen"
    first, second = rule(body), rule(body)
    texts = [first.create_id(int, NOW, ""), first.create_id(int, NOW, ""), second.create_id(int, NOW, "")]
    assert texts == ["1", "2", "1"]


def test_random_numbers_are_a_rules_own() -> None:
    body = "if salt == 'seed' then math.randomseed(1) end return math.random(1, 1000000)"
    seeded, neighbour = rule(body), rule(body)
    first = seeded.create_id(int, NOW, "seed")
    second = seeded.create_id(int, NOW, "")
    assert seeded.create_id(int, NOW, "seed") == first
    neighbour.create_id(int, NOW, "seed")
    neighbour.create_id(int, NOW, "")
    assert seeded.create_id(int, NOW, "") == second
    assert rule(body).create_id(int, NOW, "") != rule(body).create_id(int, NOW, "")


def test_random_keeps_its_interval() -> None:
    body = """
    local low, high = 9, 0
    for _ = 1, 2000 do
      local n, f = math.random(3, 6), math.random()
      assert(f >= 0 and f < 1 and n == math.floor(n))
      low, high = math.min(low, n), math.max(high, n)
    end
    return low .. '-' .. high .. '-' .. math.random(1)"""
    assert made(body) == "3-6-1"


# Loading


def test_a_first_line_with_a_hash_and_a_byte_order_mark_are_skipped() -> None:
    assert LuaRule("\ufeff#!/usr/bin/lua\n" + ORDER).max_counter == 999_999


@pytest.mark.parametrize(
    ("source", "says", "starts"),
    [
        ("x = = 1", "Line 1: unexpected symbol", "x ="),
        (BOUNDS + "function create_id(\nend", "Line 6: ", "end"),
        ("local a = {}\nlocal b = a.b.c", "Line 2: attempt to index field 'b'", "local b"),
        ("error('at load')", "Line 1: at load", "error"),
    ],
)
def test_a_script_that_does_not_load_names_its_line(source: str, says: str, starts: str) -> None:
    with pytest.raises(BadRule, match=says) as caught:
        LuaRule(source)
    assert caught.value.position is not None
    assert source[caught.value.position :].startswith(starts)


@pytest.mark.parametrize("missing", ["min_counter", "max_counter", "reset_seconds", "create_id"])
def test_each_of_the_four_functions_is_needed(missing: str) -> None:
    with pytest.raises(BadRule, match=rf"{missing}\(\) is missing"):
        LuaRule(f"{ORDER}\n{missing} = nil")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("min_counter", "-1", "0 <= min < max"),
        ("min_counter", "999999", "0 <= min < max"),
        ("min_counter", "0.5", "not a whole number"),
        ("max_counter", "0/0", "not a whole number"),
        ("max_counter", "1/0", "not a whole number"),
        ("max_counter", "-1/0", "not a whole number"),
        ("max_counter", "2^63", "14 digits"),
        ("max_counter", "10^14", "14 digits"),
        ("max_counter", "1e308", "14 digits"),
        ("max_counter", "'99'", "returned a string"),
        ("max_counter", "nil", "returned a nil"),
        ("max_counter", "{}", "returned a table"),
        ("max_counter", "error('why')", "max_counter.*Line .*why"),
        ("max_counter", "(function() while true do end end)()", "took longer than 50 ms"),
        ("reset_seconds", "1/0", "not a whole number"),
        ("reset_seconds", "true", "returned a boolean"),
    ],
)
def test_nonsense_bounds_are_refused(name: str, value: str, says: str) -> None:
    with pytest.raises(BadRule, match=says):
        LuaRule(f"{ORDER}\nfunction {name}() return {value} end")


@pytest.mark.parametrize(("value", "seconds"), [("0", 0), ("-5", 0), ("1", 1), ("604800", 604_800)])
def test_a_reset_below_one_second_is_none(value: str, seconds: int) -> None:
    assert LuaRule(f"{ORDER}\nfunction reset_seconds() return {value} end").reset_seconds == seconds


def test_the_greatest_maximum_still_joins_to_text_exactly() -> None:
    create = "function create_id(counter) return 'N' .. counter:generate_counter() end"
    source = f"{BOUNDS} function max_counter() return {MAX_EXACT} end {create}"
    big = LuaRule(source)
    assert big.max_counter == MAX_EXACT
    assert big.create_id(lambda: MAX_EXACT, NOW, "") == f"N{MAX_EXACT}"
    with pytest.raises(RuleFailed, match="14 digits"):
        big.create_id(lambda: MAX_EXACT + 1, NOW, "")


def test_a_script_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadRule, match="at most 32768"):
        LuaRule(ORDER + "-" * MAX_SCRIPT_BYTES)


@pytest.mark.parametrize("bounds", [{"milliseconds": 0}, {"memory": 1000}])
def test_limits_of_the_sandbox_must_not_be_too_small(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="needs milliseconds"):
        LuaRule(ORDER, **bounds)


def test_without_lupa_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("lupa"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr("resty_django.ids.engine.lua.script.import_module", missing)
    with pytest.raises(BadRule, match=r"resty-django\[lua\]"):
        LuaRule(ORDER)


# Numbers that do not come


class Boom(BaseException):
    pass


@pytest.mark.parametrize("error", [Exhausted("all gone"), Unavailable("no database"), ValueError("odd"), Boom()])
@pytest.mark.parametrize(
    "body",
    [
        "return 'A' .. counter:generate_counter()",
        "pcall(counter.generate_counter, counter) return 'swallowed'",
        "xpcall(function() counter:generate_counter() end, function() end) return 'swallowed'",
        "pcall(counter.generate_counter, counter) while true do end",
        "pcall(counter.generate_counter, counter) return nil",
        "pcall(counter.generate_counter, counter) return ('x'):rep(1e9)",
    ],
)
def test_errors_of_take_propagate_whatever_the_script_does_with_them(error: BaseException, body: str) -> None:
    calls = count()

    def take() -> int:
        next(calls)
        raise error

    it = rule(body)
    with pytest.raises(type(error)) as caught:
        it.create_id(take, NOW, "")
    assert caught.value is error
    assert next(calls) == 1


def test_a_script_sees_a_plain_text_where_take_failed() -> None:
    texts: list[str] = []

    def take() -> int:
        if not texts:
            texts.append("x")
            raise Exhausted("all gone")
        return 1

    body = "local ok, e = pcall(counter.generate_counter, counter) kept = type(e) .. ' ' .. e return 'x'"
    it = rule(f"if kept then return kept end {body}")
    with pytest.raises(Exhausted):
        it.create_id(take, NOW, "")
    assert it.create_id(take, NOW, "").startswith("string ")


def test_after_a_failed_number_there_is_no_other() -> None:
    numbers = iter([Exhausted("gone"), 5])

    def take() -> int:
        number = next(numbers)
        if isinstance(number, Exception):
            raise number
        return number

    with pytest.raises(Exhausted):
        made("pcall(counter.generate_counter, counter) return counter:generate_counter()", take=take)
    assert next(numbers) == 5


def test_waiting_for_a_number_does_not_count_as_the_scripts_time() -> None:
    def slow() -> int:
        end = time.process_time() + 0.08
        while time.process_time() < end:
            pass
        return 3

    body = "for i = 1, 2000 do end local n = counter:generate_counter() for i = 1, 2000 do end return n"
    assert made(body, take=slow) == "3"


def test_one_id_takes_at_most_a_hundred_numbers() -> None:
    numbers = count(1)
    body = "local n for i = 1, tonumber(salt) do n = counter:generate_counter() end return n"
    assert made(body, salt="100", take=numbers.__next__) == "100"
    with pytest.raises(RuleFailed, match="more than 100 numbers"):
        made(body, salt="101", take=numbers.__next__)
    assert next(numbers) == 201


def test_a_rule_used_inside_its_own_take_fails_instead_of_waiting_for_itself() -> None:
    it = rule("return counter:generate_counter()")
    with pytest.raises(RuleFailed, match="taking"):
        it.create_id(lambda: int(it.create_id(int, NOW, "")), NOW, "")
    assert it.create_id(lambda: 4, NOW, "") == "4"


def test_threads_do_not_mix_their_numbers() -> None:
    it = rule("local a = counter:generate_counter() local s = salt for i = 1, 50 do end return s .. ':' .. a")
    wrong: list[str] = []

    def work(name: str) -> None:
        mine = count()
        for i in range(300):
            if i % 50 == 49:
                try:
                    it.create_id(lambda: [].pop(), NOW, name)
                except IndexError:
                    continue
                wrong.append("no error")
            number = next(mine)
            text = it.create_id(lambda number=number: number, NOW, name)  # type: ignore[misc]
            if text != f"{name}:{number}":
                wrong.append(text)

    together(*[partial(work, name) for name in "abcd"])
    assert wrong == []


# The library, against stock Lua 5.1

ITEMS = """
a b . - * + ? ^ $ ( ) () [ ] [^ [ab] [^a] [a-c] []] [%a-] [a-] %a %d %s %w %p %x %c %l %u %z %A %D %W %S  %1 %2 %0
%b() %bab %f[a] %f[%w] %f % %% %- (a) (a*) (.-) (b+)
"""
PATTERNS = st.lists(
    st.one_of(
        st.sampled_from(ITEMS.split()),
        st.text("ab(]%1-\0", max_size=2),
    ),
    max_size=6,
).map("".join)
SUBJECTS = st.text("aabb()1 -%]é\0", max_size=10)
PROBE = r"""
local find, match, gmatch, gsub, pcall = string.find, string.match, string.gmatch, string.gsub, pcall
local function show(...)
  local out = {}
  for i = 1, select('#', ...) do out[i] = type((select(i, ...))) .. '=' .. tostring((select(i, ...))) end
  return (table.concat(out, ','):gsub('^string=[^:]+:%d+: ', 'string='))
end
local function message(ok, ...)
  if ok then return show(true, ...) end
  local text = ...
  local from = find(text, ': ', 1, true)
  return 'error ' .. (from and string.sub(text, from + 2) or text)
end
return function(what, s, p, extra, n)
  if what == 'find' then return message(pcall(find, s, p, n, extra == 'plain')) end
  if what == 'match' then return message(pcall(match, s, p, n)) end
  if what == 'gmatch' then
    return message(pcall(function()
      local out, turns = {}, 0
      for a, b, c in gmatch(s, p) do out[#out + 1] = show(a, b, c) turns = turns + 1 if turns > 30 then break end end
      return table.concat(out, ';')
    end))
  end
  local repl = extra
  if what == 'gsub-table' then repl = { a = 'X', ab = 1.5, b = false, ['1'] = 12, [''] = 'E', [1] = 'one' } end
  if what == 'gsub-function' then
    repl = function(a, b) if a == 'a' then return nil elseif b then return b .. '!' end return '<' .. a .. '>' end
  end
  return message(pcall(gsub, s, p, repl, n))
end
"""


def _probes() -> tuple[Callable[..., bytes], Callable[..., bytes]]:
    from lupa import lua51

    from resty_django.ids.engine.lua.script import read_lua

    def runtime() -> Any:
        return lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)

    stock = runtime().execute(PROBE)
    swap = b"""
    local patterns, probe = ...
    local function blame(message) error(message, 3) end
    local library = loadstring(patterns, '=patterns')
    string.find, string.match, string.gmatch, string.gsub =
      library(string, table, unpack, math.floor, math.ceil, blame)
    return loadstring(probe)()
    """
    ours = runtime().execute(swap, read_lua("patterns.lua"), PROBE.encode())
    return stock, ours


STOCK, OURS = _probes()


def agree(what: str, s: str, p: str, extra: str = "", n: int | None = None) -> None:
    ask = (what.encode(), s.encode(), p.encode(), extra.encode(), n)
    assert OURS(*ask) == STOCK(*ask), ask


@settings(max_examples=600, deadline=None)
@given(SUBJECTS, PATTERNS, st.none() | st.integers(-12, 12), st.sampled_from(["", "", "", "plain"]))
def test_find_and_match_are_stock_luas(s: str, p: str, init: int | None, plain: str) -> None:
    agree("find", s, p, plain, init)
    agree("match", s, p, "", init)


@settings(max_examples=600, deadline=None)
@given(
    SUBJECTS,
    PATTERNS,
    st.text("x%012%- ", max_size=5),
    st.none() | st.integers(-1, 4),
    st.sampled_from(["gmatch", "gsub", "gsub-table", "gsub-function"]),
)
def test_gmatch_and_gsub_are_stock_luas(s: str, p: str, repl: str, limit: int | None, what: str) -> None:
    agree(what, s, p, repl, limit)


@pytest.mark.parametrize("letter", "acdlpsuwxzACDLPSUWXZ.-bkf")
def test_classes_are_stock_luas_for_each_byte(letter: str) -> None:
    every = b"".join(bytes([i]) for i in range(256))
    for pattern in (f"%{letter}", f"[%{letter}]", f"[^%{letter}_]"):
        ask = (b"gsub", every, pattern.encode(), b"<%0>", None)
        assert OURS(*ask) == STOCK(*ask)


@pytest.mark.parametrize(
    ("s", "p"),
    [
        ("a" * 300, "()" * 33),
        ("a" * 40, "(a)" * 32),
        ("x = (a(b)c) y", "%b()"),
        ("THE (quick) fox", "%f[%a]%a+"),
        ("key = value", "^(%w+)%s*=%s*(%w+)$"),
        ("a\0b", "a%zb"),
        ("hello", "l-o"),
        ("", "^$"),
        ("abab", "(ab)%1"),
        ("ab" * 2000 + "c", "bc"),
        ("a" * 900 + "b" + "a" * 10, "a" * 300 + "b"),
        ("a" * 900, "a" * 300 + "b"),
    ],
)
def test_chosen_patterns_are_stock_luas(s: str, p: str) -> None:
    for what in ("find", "match", "gmatch", "gsub"):
        agree(what, s, p, "[%1]" if "(" in p else "-")


TABLE_PROBE = r"""
local steps, out, t = ..., {}, {}
for op, pos, value in steps:gmatch('(%a+) (%-?%d+) (%d+);') do
  pos = tonumber(pos)
  local ok, result
  if op == 'append' then ok, result = pcall(table.insert, t, value)
  elseif op == 'insert' then ok, result = pcall(table.insert, t, pos, value)
  elseif op == 'remove' then ok, result = pcall(table.remove, t, pos)
  elseif op == 'pop' then ok, result = pcall(table.remove, t)
  else ok, result = pcall(table.sort, t, pos > 0 and function(a, b) return a > b end or nil) end
  out[#out + 1] = tostring(ok) .. tostring(ok and result) .. #t
end
out[#out + 1] = table.concat(t, ' ')
table.foreachi(t, function(i, v) out[#out + 1] = i .. v end)
local s = 0
table.foreach(t, function(k, v) s = s + v end)
return table.concat(out, ',') .. s
"""


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "insert", "remove", "pop", "sort"]),
            st.integers(1, 6),
            st.integers(0, 99),
        ),
        max_size=12,
    )
)
def test_table_functions_are_stock_luas(steps: list[tuple[str, int, int]]) -> None:
    length = 0
    text = ""
    for op, position, value in steps:
        if op == "insert":  # within the table: what a gap does is not defined
            position = min(position, length + 1)
        length += {"append": 1, "insert": 1, "sort": 0}.get(op, 0)
        length -= int(op == "pop" and length > 0) + int(op == "remove" and position <= length)
        text += f"{op} {position} {value};"
    expected = STOCK_TABLE(text.encode()).decode()
    it = rule(
        f"local function f(...) {TABLE_PROBE} end local answer = f(salt) return #answer .. '|' .. answer:sub(1, 200)"
    )
    assert it.create_id(int, NOW, text) == f"{len(expected)}|{expected[:200]}"


def _stock_table() -> Callable[[bytes], bytes]:
    from lupa import lua51

    function: Callable[[bytes], bytes] = lua51.LuaRuntime(encoding=None).eval(
        f"function(...) {TABLE_PROBE} end".encode()
    )
    return function


STOCK_TABLE = _stock_table()


@pytest.mark.parametrize(
    "expression",
    [
        "('ab'):rep(3)",
        "('ab'):rep(0)",
        "('ab'):rep(-1)",
        "('ab'):rep('2')",
        "(''):rep(1e5)",
        "tostring(nil)",
        "tostring(12.5)",
        "tostring(true)",
        "tostring(setmetatable({}, {__tostring = function() return 'me' end}))",
        "select('#', pcall(error))",
        "tostring(select(2, pcall(error, 'x', 0)))",
        "tostring(select(2, xpcall(function() error('x', 0) end, function(m) return m .. '!' end)))",
        "select('#', xpcall(function() return 1, nil, nil end, print))",
        "table.concat({1, 2, 3}, '-', 2)",
        "('%5.1f|%q|%x'):format(3.14159, 'a', 255)",
        "('x'):upper():lower():reverse():len()",
        "unpack({5, 6})",
        "math.max(1, 5, 2) .. math.fmod(7, 3) .. math.floor(-1.5)",
        "tonumber('ff', 16) .. tonumber(' 12 ')",
        "string.char(65, 66) .. ('A'):byte()",
        "#table.concat({}, ',')  + table.getn({1, 2}) + table.maxn({[7] = 1})",
        "_VERSION",
        "string.gfind('ab', 'b')()",
    ],
)
def test_the_rest_of_the_library_answers_as_stock_lua_does(expression: str) -> None:
    from lupa import lua51

    stock = lua51.LuaRuntime(encoding=None).execute(f"return tostring(({expression})) .. '|'".encode())
    assert made(f"return tostring(({expression})) .. '|'") == stock.decode()
