"""Template rules: what every field writes, what is refused and where, and that no two numbers make one text."""

from __future__ import annotations

import string
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from stdnum import damm, luhn
from stdnum.iso7064 import mod_97_10

from resty_django.ids.engine import strftime
from resty_django.ids.engine import template as template_module
from resty_django.ids.engine.checkdigit import CHECKS
from resty_django.ids.engine.cycle import DAY_SECONDS, WEEK_SECONDS, Reset
from resty_django.ids.engine.rule import MAX_ID_LENGTH, RuleSpec, compile_rule
from resty_django.ids.engine.template import BASE32, BASE36, Template, in_base
from resty_django.ids.engine.wall_clock import datetime_of, moment_of, wall_of
from resty_django.ids.errors import BadRule, BadSalt

NOON = datetime(2026, 11, 21, 12, 34, 56)
KEY = b"0123456789abcdef"


def template(source: str, **options: Any) -> Template:
    options = {"max_counter": 999_999, "scramble_key": KEY, **options}
    compiled = compile_rule(RuleSpec(name="order", source=source, **options))
    assert isinstance(compiled, Template)
    return compiled


def text(source: str, number: int = 42, at: datetime = NOON, app: str = "shop", salt: str = "", **options: Any) -> str:
    """The ID, which both forms of the shape must agree on."""
    printf, render = template(source, **options).shape(wall_of(at), app)
    rendered = render(number, salt)
    if printf is not None:
        assert printf % number == rendered
    return rendered


def refused(source: str, **options: Any) -> BadRule:
    with pytest.raises(BadRule) as caught:
        template(source, **options)
    return caught.value


# The text of fields


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("O{now:%y%m%d}{counter:06d}", "O261121000042"),
        ("{now:%1Y%m%d}{counter:06d}", "61121000042"),
        ("{counter}", "42"),
        ("{counter:d}", "42"),
        ("{counter:08x}", "0000002a"),
        ("{counter:08X}", "0000002A"),
        ("{counter:05b32}", "0001A"),
        ("{counter:05b36}", "00016"),
        ("{counter:b32}", "1A"),
        ("{counter:012d}", "000000000042"),
        ("{rule}-{app}-{node}-{counter}", "order-shop-n1-42"),
        ("{{{counter}}}", "{42}"),
        ("{{counter}}{counter:06d}", "{counter}000042"),
        ("100%-{counter:06d}-%d-%s-%(x)s", "100%-000042-%d-%s-%(x)s"),
        ("№{counter:06d}号", "№000042号"),
        ("{now:%Y-%m-%dT%H:%M:%S} {counter:06d}", "2026-11-21T12:34:56 000042"),
        ("{now:%b%%%q}{counter:06d}", "Nov%4000042"),
        ("{now:plain}{counter:06d}", "plain000042"),
        ("{counter:06d}{luhn}", "0000422"),
        ("A{counter:06d}{mod97}", f"A000042{mod_97_10.calc_check_digits('A000042')}"),
    ],
)
def test_a_field_writes_what_it_says(source: str, expected: str) -> None:
    assert text(source, node="n1") == expected


@given(st.datetimes(datetime(1970, 1, 2), datetime(9998, 1, 1)))
def test_directives_agree_with_strftime(at: datetime) -> None:
    assume(at.year >= 1000)
    for name in ["y", "m", "b", "d", "j", "V", "u", "H", "M", "S"]:
        assert text(f"{{now:%{name}}}{{counter}}", at=at) == at.replace(microsecond=0).strftime(f"%{name}") + "42"
    assert text("{now:%Y %G %1Y %q}/{counter}", at=at) == (
        f"{at.year:04d} {at.isocalendar().year:04d} {at.year % 10} {(at.month - 1) // 3 + 1}/42"
    )


@given(st.integers(0, 999_999))
def test_bases_write_the_same_number(number: int) -> None:
    assert int(text("{counter:08x}", number), 16) == number
    assert int(text("{counter:08X}", number), 16) == number
    assert int(text("{counter:08b36}", number), 36) == number
    digits = text("{counter:08b32}", number)
    assert sum(BASE32.index(c) * 32**i for i, c in enumerate(reversed(digits))) == number
    assert not set("ILOU") & set(BASE32)


@given(st.integers(0, 2**62))
def test_in_base_is_the_number_without_zeros_before_it(number: int) -> None:
    digits = in_base(number, BASE36)
    assert int(digits, 36) == number
    assert digits == "0" or not digits.startswith("0")


@given(st.integers(0, 999_999), st.text(string.ascii_uppercase, max_size=5))
def test_a_check_digit_covers_all_before_it(number: int, app: str) -> None:
    rendered = text("{counter:06d}{luhn}/{app}", number, app=app)
    assert luhn.is_valid(rendered[:7])
    assert damm.is_valid(text("{counter:06d}{damm}", number))
    assert mod_97_10.is_valid(text("{app}{counter:06d}{mod97}", number, app=app))
    # Two check digits one after the other: the second covers the first.
    both = text("{counter:06d}{luhn}{damm}", number)
    assert luhn.is_valid(both[:7])
    assert damm.is_valid(both)


def test_random_characters_are_of_their_alphabet_and_length() -> None:
    texts = {text("{counter}-{rand:12}") for _ in range(50)}
    assert len(texts) == 50
    assert all(len(rendered) == 15 and set(rendered[3:]) <= set(string.digits) for rendered in texts)
    texts = {text("{counter}-{rand:9b32}") for _ in range(50)}
    assert len(texts) == 50
    assert all(len(rendered) == 12 and set(rendered[3:]) <= set(BASE32) for rendered in texts)


@pytest.mark.parametrize("app", ["50%", "%d", "%%", "%(number)s", "{counter}", "{0}", "\\"])
def test_a_name_is_text_whatever_it_looks_like(app: str) -> None:
    assert text("{app}/{counter:06d}", app=app) == f"{app}/000042"
    assert text("{node}/{counter:06d}", node=app) == f"{app}/000042"


def test_the_text_of_a_time_lasts_as_long_as_it_says() -> None:
    assert template("{counter}").resolution == DAY_SECONDS
    assert template("{now:%y%m%d}{counter}").resolution == DAY_SECONDS
    assert template("{now:%y%m%d%H}{counter}").resolution == 3600
    assert template("{now:%H}{counter}{now:%M}").resolution == 60
    assert template("{now:%S}{counter}").resolution == 1


@settings(max_examples=50)
@given(
    st.sets(st.sampled_from(["Y", "y", "1Y", "q", "m", "b", "d", "j", "G", "V", "u", "H", "M", "S"]), min_size=1),
    st.integers(0, 2**33),
)
def test_a_text_is_right_for_its_whole_resolution(names: set[str], wall: int) -> None:
    rule = template("".join(f"{{now:%{name}}}" for name in sorted(names)) + "/{counter}")
    first = wall // rule.resolution * rule.resolution
    last = first + rule.resolution - 1
    assert (
        rule.shape(first, "").render(1, "") == rule.shape(wall, "").render(1, "") == rule.shape(last, "").render(1, "")
    )


# Scrambled numbers


@pytest.mark.parametrize("source", ["{counter:scramble}", "{counter:04d:scramble}", "{counter:03b36:scramble}"])
def test_scrambled_ids_are_all_different_and_all_used(source: str) -> None:
    rule = template(source, min_counter=100, max_counter=1999)
    render = rule.shape(0, "").render
    ids = [render(number, "") for number in range(100, 2000)]
    assert len(set(ids)) == 1900
    assert len({len(id_) for id_ in ids}) == 1
    base = 36 if "b36" in source else 10
    assert sorted(int(id_, base) for id_ in ids) == list(range(100, 2000))
    assert ids != sorted(ids)


def test_another_key_scrambles_differently() -> None:
    numbers = range(50)
    first = [text("{counter:scramble}", number) for number in numbers]
    second = [text("{counter:scramble}", number, scramble_key=b"another key here") for number in numbers]
    assert first != second


# Refused sources, and the position of the mistake


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ("x{counter.__class__}", 1),
        ("{counter[0]}", 0),
        ("{counter!r}", 0),
        ("{0}", 0),
        ("{}", 0),
        ("{ counter}", 0),
        ("{Counter}", 0),
        ("{counter:{now}}", 9),
        ("{now:{counter}}", 5),
        ("{counter:}", 9),
        ("{counter:6d}", 9),
        ("{counter:0d}", 9),
        ("{counter:06.2f}", 9),
        ("{counter:>06d}", 9),
        ("{counter:06e}", 9),
        ("{counter:0999999999d}", 9),
        ("{counter:٠٦d}", 9),
        ("{counter:06d:shuffle}", 9),
        ("{counter:scramble:06d}", 9),
        ("{counter:06dscramble}", 9),
        ("{now}{counter}", 0),
        ("{now:}{counter}", 5),
        ("{now:%n}{counter}", 5),
        ("{now:%Y-%n}{counter}", 8),
        ("{now:%Z}{counter}", 5),
        ("{now:%-d}{counter}", 5),
        ("{now:%}{counter}", 5),
        ("{now:%1m}{counter}", 5),
        ("{now:%y\n}{counter}", 5),
        ("{", 0),
        ("ab{counter", 2),
        ("}", 0),
        ("ab}{counter}", 2),
        ("{{}", 2),
        ("{counter}}", 9),
        ("", 0),
        ("abc", 3),
        ("{counter}{counter}", 9),
        ("a\nb{counter}", 1),
        ("{counter}\x00", 9),
        ("{counter}\ud800", 9),
        ("{luhn:1}{counter}", 6),
        ("{rule:}{counter}", 6),
        ("{salt:0}{counter}", 6),
        ("{salt:33}{counter}", 6),
        ("{salt:x}{counter}", 6),
        ("{salt:٤}{counter}", 6),
        ("{rand}{counter}", 0),
        ("{rand:0}{counter}", 6),
        ("{rand:65}{counter}", 6),
        ("{rand:4b36}{counter}", 6),
        ("{salt}{counter}", 0),
        ("{counter}{salt}", 9),
        ("{counter:06d}{salt}{salt}", 19),
        ("{salt:2}{counter:06d}{salt:3}", 21),
        ("{salt}{counter:06d}{salt:3}", 19),
        ("ab{counter:05d}", 2),
        ("ab{counter:04x}", 2),
        ("ab{counter:03b36}", 2),
        ("ab{counter:05d:scramble}", 2),
    ],
)
def test_a_mistake_is_refused_at_its_place(source: str, position: int) -> None:
    error = refused(source)
    assert error.position == position
    assert str(error)


@pytest.mark.parametrize(
    ("source", "reset", "says"),
    [
        ("{app.name}{counter}", Reset(), "{app.name} is not a field. Use counter, now, salt, app, rule, node, rand,"),
        ("O{counter:06d", Reset(), "A { has no matching }. Write {{ for a literal brace."),
        ("O}{counter}", Reset(), "A } has no matching {. Write }} for a literal brace."),
        ("{counter:}", Reset(), "The colon in {counter:} has nothing after it. Add a format or remove the colon."),
        ("{now}{counter}", Reset(), "{now} has no directives. Add them, for example {now:%y%m%d}."),
        ("{now:%B}{counter}", Reset(), "%B is not a directive of {now}. Use %Y %y %1Y %q %m %b %d %j %G %V %u %H %M"),
        ("{now:%Y}{counter:06d}", Reset(DAY_SECONDS), "Show the day (%m%d or %j) in {now:...}, or never reset."),
        ("{now:%y%m%d}{counter:06d}", Reset(3600), "Show the hour (%H) in {now:...}, or never reset."),
        ("{salt:40}{counter}", Reset(), "The length in {salt:N} is not valid. Use 1 to 32."),
        ("{rand:0}{counter}", Reset(), "Use {rand:N} or {rand:Nb32}, with N from 1 to 64."),
        ("{app:5}{counter}", Reset(), "{app} does not accept a format. Remove the colon and the text after it."),
    ],
)
def test_a_mistake_has_a_message_that_says_what_to_write(source: str, reset: Reset, says: str) -> None:
    assert says in str(refused(source, reset=reset))


def test_ids_longer_than_their_column_are_refused() -> None:
    assert "255" in str(refused("x" * 250 + "{counter:06d}"))
    assert text("x" * 249 + "{counter:06d}") == "x" * 249 + "000042"
    assert "255" in str(refused("{app}" * 4 + "{counter:06d}"))
    assert "255" in str(refused("{salt:32}" * 8 + "{counter:06d}"))


@pytest.mark.parametrize(
    ("source", "fits", "too_many"),
    [
        ("{counter:04d}", 9999, 10_000),
        ("{counter:04x}", 0xFFFF, 0x10000),
        ("{counter:04X}", 0xFFFF, 0x10000),
        ("{counter:04b32}", 32**4 - 1, 32**4),
        ("{counter:04b36}", 36**4 - 1, 36**4),
        ("{counter:04b36:scramble}", 36**4 - 1, 36**4),
    ],
)
def test_the_maximum_must_fit_its_width(source: str, fits: int, too_many: int) -> None:
    assert len(text(source, fits, max_counter=fits)) == 4
    assert refused(source, max_counter=too_many).position == 0


# Texts that must distinguish one cycle from the next


HOUR = Reset(3600)
MONTH, YEAR = Reset(calendar="month"), Reset(calendar="year")


@pytest.mark.parametrize(
    ("reset", "enough", "not_enough"),
    [
        (Reset(), ["", "%y", "%S"], []),
        (YEAR, ["%Y", "%y", "%1Y", "%G%V%u"], ["", "%m%d", "%G", "%G%V", "%H"]),
        (MONTH, ["%Y%m", "%y%b", "%1Y%j", "%G%V%u"], ["%Y", "%m", "%Y%d", "%Y%q", "%Y%V", "%G%V"]),
        (Reset(WEEK_SECONDS), ["%G%V", "%y%m%d", "%Y%j", "%G%V%u"], ["%Y%V", "%V", "%y%m", "%Y%u", "%G"]),
        (Reset(2 * WEEK_SECONDS), ["%G%V", "%y%m%d"], ["%Y%V"]),
        (
            Reset(DAY_SECONDS),
            ["%y%m%d", "%1Y%m%d", "%y%b%d", "%y%j", "%G%V%u"],
            ["%m%d", "%y%m", "%y%d", "%G%V", "%Y%u", "%j"],
        ),
        (Reset(3 * DAY_SECONDS), ["%y%m%d", "%Y%j"], ["%G%V", "%y%m"]),
        (HOUR, ["%y%m%d%H", "%y%j%H", "%G%V%u%H"], ["%y%m%d", "%H", "%m%d%H", "%y%m%d%M"]),
        (Reset(36 * 3600), ["%y%m%d%H"], ["%y%m%d"]),
        (Reset(5400), ["%y%m%d%H%M"], ["%y%m%d%H", "%y%m%d%M"]),
        (Reset(60), ["%y%m%d%H%M"], ["%y%m%d%H"]),
        (Reset(90), ["%y%m%d%H%M%S"], ["%y%m%d%H%M", "%y%m%d%H%S"]),
        (Reset(1), ["%Y%j%H%M%S"], ["%Y%j%H%M"]),
    ],
)
def test_a_reset_needs_its_cycle_in_the_text(reset: Reset, enough: list[str], not_enough: list[str]) -> None:
    for directives in enough:
        source = f"{{now:{directives}}}{{counter:06d}}" if directives else "{counter:06d}"
        template(source, reset=reset)
    for directives in not_enough:
        source = f"ab{{now:{directives}}}{{counter:06d}}" if directives else "ab{counter:06d}"
        error = refused(source, reset=reset)
        assert "would repeat" in str(error)
        assert error.position == (2 if directives else len(source))


def test_directives_may_be_spread_over_several_fields() -> None:
    assert text("{now:%y}-{counter:06d}-{now:%m%d}", reset=Reset(DAY_SECONDS)) == "26-000042-1121"


def test_a_percent_sign_is_not_a_directive() -> None:
    assert "would repeat" in str(refused("{now:%%Y%%m%%d}{counter:06d}", reset=Reset(DAY_SECONDS)))


lengths = st.one_of(
    st.sampled_from(
        [
            1,
            30,
            60,
            90,
            900,
            1800,
            3600,
            5400,
            7200,
            DAY_SECONDS,
            2 * DAY_SECONDS,
            36 * 3600,
            WEEK_SECONDS,
            2 * WEEK_SECONDS,
        ]
    ),
    st.integers(1, 20 * DAY_SECONDS),
)
resets = st.one_of(lengths.map(Reset), st.sampled_from([MONTH, YEAR]))


@settings(max_examples=400)
@given(
    resets, st.sets(st.sampled_from(["Y", "y", "1Y", "q", "m", "b", "d", "j", "G", "V", "u", "H", "M", "S"])), st.data()
)
def test_texts_of_two_cycles_differ(reset: Reset, names: set[str], data: st.DataObject) -> None:
    pieces = [f"%{name}" for name in sorted(names)]
    if strftime.missing_for(reset, pieces) is not None:
        return
    first = wall_of(data.draw(st.datetimes(datetime(1970, 2, 1), datetime(2090, 1, 1))))
    cycle = reset.cycle(first)
    # %1Y and %y come again after 10 and 100 years: that is the user's choice.
    horizon = min(cycle.end + 400 * (cycle.end - cycle.start), cycle.start + 9 * 365 * DAY_SECONDS)
    assume(cycle.end < horizon)
    second = data.draw(st.integers(cycle.end, horizon))
    assume((datetime_of(second) - datetime_of(cycle.start)) < timedelta(days=9 * 365))
    assert strftime.show(pieces, moment_of(first), first) != strftime.show(pieces, moment_of(second), second)


# Salt


@pytest.mark.parametrize(
    "source", ["{salt}{counter:06d}", "{counter:06d}{salt}", "{salt:3}{counter}", "{counter}-{salt:3}"]
)
@given(data=st.data())
def test_two_salts_and_numbers_never_make_one_text(source: str, data: st.DataObject) -> None:
    rule = template(source)
    alphabet = string.ascii_letters + string.digits
    salts = (
        st.text(alphabet, min_size=3, max_size=3) if "{salt:3}" in source else st.text("01" + alphabet[-1], max_size=4)
    )
    pairs = st.tuples(st.integers(0, 999_999), salts)
    first, second = data.draw(pairs), data.draw(pairs)
    assume(first != second)
    render = rule.shape(0, "").render
    assert render(*first) != render(*second)


@pytest.mark.parametrize("salt", ["a-b", " ", "é", "a\x00", "٣", "<", "'", "\\", "x" * 33])
def test_a_salt_is_letters_and_digits(salt: str) -> None:
    with pytest.raises(BadSalt, match="letters and digits"):
        template("{salt}{counter:06d}").check_salt(salt)


def test_a_salt_of_fixed_length_has_that_length() -> None:
    rule = template("{salt:4}{counter:06d}")
    rule.check_salt("ab12")
    for salt in ("", "abc", "abcde"):
        with pytest.raises(BadSalt, match="exactly 4"):
            rule.check_salt(salt)
    with pytest.raises(BadSalt, match="letters"):
        rule.check_salt("ab-1")


def test_a_salt_that_is_not_shown_is_not_checked() -> None:
    rule = template("{counter:06d}")
    assert not rule.needs_salt
    rule.check_salt("any thing <at all>")
    assert template("{salt}{counter:06d}").needs_salt


# Templates that are made to cost


@pytest.mark.parametrize(
    "source",
    [
        "{counter}" + "{luhn}" * 4000,
        "{counter}" + "{mod97}" * 65,
        "{app}" * 64 + "{counter}{mod97}",
        "1" * 5000 + "{counter}{mod97}",
        "{counter}" + "{rand:64}" * 4,
        "{counter}" + "{now:" + "%Y" * 500 + "}",
        "{" * 24_000,
        "{{" * 12_000,
        "{counter}" + "{" * 2000,
    ],
)
def test_too_long_is_found_before_anything_is_computed(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    field = template_module.parse_field

    def noted_check(text: str) -> str:
        computed.append("check")
        return "0"

    def noted_field(*args: Any) -> Any:
        computed.append("field")
        return field(*args)

    for name in CHECKS:
        monkeypatch.setitem(CHECKS, name, noted_check)
    monkeypatch.setattr(template_module, "parse_field", noted_field)
    with pytest.raises(BadRule):
        compile_rule(RuleSpec(name="r", source=source, max_counter=9))
    assert len(computed) <= template_module.MAX_FIELDS
    assert set(computed) <= {"field"}


FIELDS = ["{counter}", "{counter:04d}", "{salt}", "{app}", "{luhn}", "{mod97}", "{damm}", "{now:%Y}", "{rand:9}"]
PIECES = st.sampled_from([*"{}:%0aé\n!._", *FIELDS, "{counter", "{now:", "06d", "scramble", "[0]"])


@given(source=st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=50), name=st.text(max_size=70))
def test_any_source_makes_a_rule_or_a_bad_rule(source: str, name: str) -> None:
    position = None
    try:
        rule = compile_rule(RuleSpec(name=name, source=source, max_counter=999))
    except BadRule as error:
        position = error.position
    else:
        printf, render = rule.shape(0, "a" * 64)
        text = render(999, "0" * 32)
        assert len(text) <= MAX_ID_LENGTH
        assert printf is None or printf % 999 == text
    assert position is None or 0 <= position <= len(source)


@pytest.mark.parametrize("length", [1, 999, 1000, 1001, 5000, 12_345])
def test_mod97_takes_any_length(length: int) -> None:
    digits = "3" * length
    check = CHECKS["mod97"](digits)
    remainder = 0
    for digit in digits + check:
        remainder = (remainder * 10 + int(digit)) % 97
    assert remainder == 1
