"""Taking over from id_server: a configuration, scripts and a table as id_server leaves them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from resty_django.ids import next_id, next_ids, service
from resty_django.ids.legacy import IdServerRow, Plan, Refused, make_plan, read_config, read_rows
from resty_django.ids.models import IdCounter, IdRule

pytest.importorskip("lupa")
pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

SCRIPT = """
function min_counter() return {low} end
function max_counter() return {high} end
function reset_seconds() return {reset} end
function create_id(counter, now, salt)
  return {body}
end
"""
NUMBER = 'string.format("N%06d", counter:generate_counter())'
DATED = 'string.format("O%02d%02d%02d%06d", now:year() % 100, now:month(), now:day(), counter:generate_counter())'
BERLIN = ZoneInfo("Europe/Berlin")

Original = Callable[..., Path]


def script(body: str = NUMBER, low: int = 0, high: int = 999_999, reset: int = 0) -> str:
    return SCRIPT.format(body=body, low=low, high=high, reset=reset)


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    service.stop()
    yield
    service.stop()


@pytest.fixture
def original(tmp_path: Path) -> Original:
    """Writes a configuration and its scripts, and gives its path."""

    def write(scripts: dict[str, str] | None = None, **fields: Any) -> Path:
        scripts = {"order_id": script(DATED, reset=86_400)} if scripts is None else scripts
        (tmp_path / "rule").mkdir(exist_ok=True)
        for name, text in scripts.items():
            (tmp_path / "rule" / f"{name}.lua").write_text(text)
        rules = [{"name": name, "lua_file": f"rule/{name}.lua", "batch_save": 1000} for name in scripts]
        config = {
            "log_prefix": "log/id_server",
            "log_level": 3,
            "service_host": "0.0.0.0",  # noqa: S104
            "service_port": 1200,
            "id_step": 1,
            "id_offset": 0,
            "database": {"host": "10.0.0.1", "port": 3306, "user": "ids", "password": "secret", "dbname": "id_server"},
            "rules": rules,
            **fields,
        }
        path = tmp_path / "id_server.json"
        path.write_text(json.dumps(config))
        return path

    return write


@pytest.fixture
def counter_table(tmp_path: Path, db: None) -> Iterator[Callable[..., None]]:
    """The table of id_server, in an SQLite database of its own under the alias `original`."""
    entry = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "original.sqlite3")}
    connections.settings["original"] = connections.configure_settings({"default": {}, "original": entry})["original"]
    connection = connections["original"]
    connection.connect()  # by itself a cursor would be refused: the test case knows no such alias
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE counter (node_offset int NOT NULL DEFAULT 0, counter int NOT NULL DEFAULT 0, "
            "update_time int NOT NULL DEFAULT 0, rule_name varchar(64) NOT NULL DEFAULT '', "
            "app_name varchar(64) NOT NULL DEFAULT '', PRIMARY KEY (node_offset, rule_name, app_name))"
        )

    def insert(*rows: tuple[int, int, int, str, str]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO counter VALUES (%s, %s, %s, %s, %s)", rows)

    yield insert
    connection.close()
    del connections["original"]
    del connections.settings["original"]


def run(*arguments: object, **options: Any) -> str:
    output = StringIO()
    call_command("import_id_server", *map(str, arguments), stdout=output, no_color=True, **options)
    return output.getvalue()


def planned(path: Path, rows: list[IdServerRow], moment: datetime, **options: Any) -> Plan:
    return make_plan(read_config(path), rows, clock=moment.timestamp, **options)


def at(*fields: int, zone: ZoneInfo = BERLIN, fold: int = 0) -> datetime:
    return datetime(*fields, tzinfo=zone, fold=fold)  # type: ignore[arg-type,misc]


def ahead() -> int:
    return int(time.time())


# --- the whole way -------------------------------------------------------------------------------------------------


def test_ids_go_on_where_the_original_stopped(original: Original, counter_table: Any) -> None:
    path = original(
        {"order_id": script(DATED, reset=86_400), "task": script('"T" .. salt .. counter:generate_counter()')}
    )
    counter_table(
        (0, 4000, ahead(), "order_id", "shop"),
        (0, 4000, ahead() - 3 * 86_400, "order_id", "old"),
        (0, 77, ahead() - 300 * 86_400, "task", ""),
        (0, 5, ahead(), "order_id", "Ünï\\"),
    )
    output = run(path, database="original")
    today = datetime.now(BERLIN).strftime("%y%m%d")
    assert next_id("order_id", "shop") == f"O{today}004001"
    assert next_id("order_id", "old") == f"O{today}000000"
    assert next_id("order_id", "new") == f"O{today}000000"
    assert next_id("order_id", "Ünï\\") == f"O{today}000006"
    assert next_id("task", "", "ab") == "Tab78"
    rule = IdRule.objects.get(name="order_id")
    assert (rule.kind, rule.min_counter, rule.max_counter, rule.reset_seconds) == ("lua", 0, 999_999, 86_400)
    assert (rule.segment_size, rule.fixed_length, rule.timezone, rule.max_names) == (1000, True, "", 10_000)
    assert not IdRule.objects.get(name="task").fixed_length
    assert "2 rules and 4 counters were imported." in output
    assert "IDs of rule task may differ in length" in output


def test_nothing_is_written_by_a_dry_run(original: Original, counter_table: Any) -> None:
    counter_table((0, 4000, ahead(), "order_id", "shop"), (0, 9, 5, "order_id", "old"))
    output = run(original(), "--dry-run", database="original")
    line = next(line for line in output.splitlines() if line.startswith("order_id"))
    assert line.split() == ["order_id", "new", "0", "to", "999999", "each", "86400", "s", "1000", "2", "1", "4001"]
    assert "Nothing was written" in output
    assert not IdRule.objects.exists()
    assert not IdCounter.objects.exists()


def test_all_or_nothing(original: Original, counter_table: Any) -> None:
    path = original({"a": script(), "b": script(NUMBER, low=5, high=5)})
    counter_table((0, 4000, ahead(), "a", "shop"))
    with pytest.raises(CommandError, match=r"Rule b.*Nothing was written"):
        run(path, database="original")
    IdRule.objects.create(name="b", source="B{counter:06d}")
    original({"a": script(), "b": script()})
    with pytest.raises(CommandError, match=r"Rule b already exists\. Run again with --update"):
        run(path, database="original")
    assert [rule.name for rule in IdRule.objects.all()] == ["b"]
    assert not IdCounter.objects.exists()


def test_counters_are_missed_when_they_are_not_asked_for(original: Original) -> None:
    output = run(original())
    assert "database id_server of user ids at 10.0.0.1:3306" in output
    assert "secret" not in output
    assert "numbers start from the beginning" in output


def test_the_settings_to_write_are_printed(original: Original, settings: Any, counter_table: Any) -> None:
    counter_table((1, 3001, ahead(), "order_id", "shop"), (0, 9000, ahead(), "order_id", "shop"))
    path = original(id_step=3, id_offset=1)
    assert 'RESTY_DJANGO = {"IDS": {"STEP": 3, "OFFSET": 1}}' in run(path, "--dry-run", database="original")
    settings.RESTY_DJANGO = {"IDS": {"STEP": 3, "OFFSET": 1}}
    assert "RESTY_DJANGO" not in run(path, database="original")
    assert [next_id("order_id", "shop")[-6:] for _ in range(3)] == ["003004", "003007", "003010"]
    assert sorted(IdCounter.objects.values_list("node_offset", "step")) == [(0, 3), (1, 3)]


# --- the configuration ---------------------------------------------------------------------------------------------


def test_rules_by_name_comments_and_text_behind_the_end(original: Original) -> None:
    path = original(rules={"order_id": {"lua_file": "rule/order_id.lua", "batch_save": 50}, "two": "rule/order_id.lua"})
    text = path.read_text().replace('"log_level"', '/* a "comment" */ "log_level"').replace("{", "{ // https://x\n", 1)
    path.write_text("// the configuration\n" + text + " and more")
    config = read_config(path)
    assert [(rule.name, rule.segment_size) for rule in config.rules] == [("order_id", 50), ("two", 1)]
    assert "id_server of user ids" in config.database


def test_a_slash_in_a_text_is_no_comment(original: Original) -> None:
    path = original(database={"host": "/run//mysqld.sock", "user": "a/*b*/c", "dbname": "d"})
    assert read_config(path).database == "database d of user a/*b*/c at /run//mysqld.sock"


@pytest.mark.parametrize(
    ("batch", "size"),
    [(None, 1), (-5, 1), (0, 1), (1, 1), (500, 500), (10_000, 10_000), (10_001, 10_000), (2**40, 10_000)],
)
def test_batch_save_becomes_the_segment_size(original: Original, batch: int | None, size: int) -> None:
    rule = {"name": "order_id", "lua_file": "rule/order_id.lua", "batch_save": batch}
    path = original(rules=[{key: value for key, value in rule.items() if value is not None}])
    run(path)
    assert IdRule.objects.get().segment_size == size


def test_scripts_are_found_from_the_folder_named_or_around_the_file(original: Original, tmp_path: Path) -> None:
    path = original()
    deeper = tmp_path / "conf" / "id_server.json"
    deeper.parent.mkdir()
    path.rename(deeper)
    assert read_config(deeper).rules[0].path == tmp_path / "rule" / "order_id.lua"
    with pytest.raises(Refused, match="--lua-dir"):
        read_config(deeper, tmp_path / "elsewhere")
    assert read_config(deeper, tmp_path).rules
    assert "1 rules" in run(deeper, lua_dir=tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id_step": 200}, "8 signed bits.*steps of -56.*The maximum is 127"),
        ({"id_step": 128}, "steps of -128"),
        ({"id_step": 0}, "0 <= id_offset < id_step"),
        ({"id_step": 2, "id_offset": 2}, "0 <= id_offset < id_step"),
        ({"id_offset": -1}, "0 <= id_offset < id_step"),
        ({"id_step": True}, "id_step is not a whole number"),
        ({"id_step": "2"}, "id_step is not a whole number"),
        ({"rules": None}, "rules is neither"),
        ({"rules": ["x"]}, "a rule has no name"),
        ({"rules": [{"lua_file": "x"}]}, "a rule has no name"),
        ({"rules": [{"name": "x"}]}, "rule x has no lua_file"),
        ({"rules": [{"name": "x", "lua_file": "rule/none.lua"}]}, "Rule x: the script is missing; tried .*none.lua"),
        ({"rules": [{"name": "x", "lua_file": "rule/order_id.lua", "batch_save": "9"}]}, "batch_save of rule x"),
        ({"rules": [{"name": "x", "lua_file": "rule/order_id.lua"}] * 2}, "'x' more than once"),
        ({"rules": [{"name": "a b", "lua_file": "rule/order_id.lua"}]}, "forbidden character ' '"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused(original: Original, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(original(**fields))
    assert not IdRule.objects.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "{}", '{"id_step": 1, "id_offset": 0}', "[" * 100_000])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(CommandError, match=r"x\.json"):
        run(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        run(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(CommandError, match="cannot be read"):
        run(tmp_path / "binary.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("function (", "Rule x, .*Line 1"),
        ("x = 1", "min_counter"),
        (script(NUMBER, low=-1), "0 <= min < max"),
        (script("os.date()"), "does not return an ID here"),
        (script("nil"), "does not return an ID here"),
        (script("nil").replace("return nil", "while true do end"), "does not return an ID here.*longer than"),
        ("\0" + script(), "NUL byte"),
    ],
)
def test_a_script_that_does_not_run_here_is_refused(original: Original, text: str, message: str) -> None:
    with pytest.raises(CommandError, match=f"(?s){message}"):
        run(original({"x": text}))


def test_a_script_in_another_encoding_is_refused(original: Original, tmp_path: Path) -> None:
    path = original()
    (tmp_path / "rule" / "order_id.lua").write_bytes("-- 订单\n".encode("gbk") + script().encode())
    with pytest.raises(CommandError, match=r"is not UTF-8.*iconv"):
        run(path)


def test_a_script_that_needs_a_salt_or_outgrows_its_width_is_taken_over(original: Original) -> None:
    needs = 'string.format("S%s%04d", string.match(salt, "^%d%d$"), counter:generate_counter())'
    output = run(original({"needs": script(needs, high=9999), "wide": script(NUMBER, high=10**7)}))
    assert not IdRule.objects.get(name="needs").fixed_length
    assert not IdRule.objects.get(name="wide").fixed_length
    assert "IDs of rule wide may differ in length (IDs have 7 characters at min_counter and 9 at max_counter" in output
    assert next_id("needs", salt="42") == "S420000"


# --- the table -----------------------------------------------------------------------------------------------------


def test_a_table_that_cannot_be_read_is_refused(original: Original, counter_table: Any) -> None:
    for options, message in (
        ({"database": "nowhere"}, "DATABASES has .*default"),
        ({"database": "original", "table": "counters"}, "table counters of the database original cannot be read"),
        ({"database": "original", "table": "a; DROP TABLE counter"}, "letters, digits"),
        ({"database": "default", "table": "django_migrations"}, "must have the columns rule_name"),
    ):
        with pytest.raises(CommandError, match=message):
            run(original(), **options)
    assert not IdRule.objects.exists()


def test_rows_are_read_as_they_are(counter_table: Any) -> None:
    counter_table((1, 2**31 - 1, 5, "r", "it's"), (0, -3, 0, "r", ""))
    assert read_rows("original") == [IdServerRow("r", "", 0, -3, 0), IdServerRow("r", "it's", 1, 2**31 - 1, 5)]


def test_rows_without_a_rule_or_with_a_name_that_no_one_can_ask_for_are_left_out(
    original: Original, counter_table: Any
) -> None:
    counter_table((0, 1, 0, "gone", "a"), (0, 1, 0, "gone", "b"), (0, 1, 0, "order_id", "a b"))
    output = run(original(), database="original")
    assert "2 rows of rule gone are skipped, because the configuration does not have this rule." in output
    assert "forbidden character ' '" in output
    assert not IdCounter.objects.exists()


def test_more_names_than_a_rule_allows_raise_its_bound(original: Original, counter_table: Any) -> None:
    path = original()
    run(path)
    IdRule.objects.update(max_names=30)
    counter_table(*((0, 1, 0, "order_id", f"n{number}") for number in range(31)))
    assert "31 application names: its max_names becomes 62." in run(path, update=True, database="original")
    assert IdRule.objects.get().max_names == 62
    assert IdCounter.objects.count() == 31


def test_a_table_written_just_now_is_a_warning(original: Original, counter_table: Any) -> None:
    counter_table((0, 1, ahead() - 10, "order_id", "a"))
    assert "If id_server is still running, stop it" in run(original(), database="original")


def test_a_row_of_the_future_is_refused(original: Original) -> None:
    now = at(2026, 11, 21, 12)
    row = IdServerRow("order_id", "a", 0, 5, int(now.timestamp()) + 7200)
    with pytest.raises(Refused, match=r"2026-11-21 14:00:00, ahead of this clock"):
        planned(original(), [row], now)


@pytest.mark.parametrize(
    ("saved", "now", "goes_on"),
    [
        (at(2026, 11, 21, 0, 0), at(2026, 11, 21, 23, 59), True),
        (at(2026, 11, 20, 23, 59, 59), at(2026, 11, 21, 0, 0), False),
        (at(2026, 11, 1, 12), at(2026, 11, 21, 12), False),
        # In summer id_server's day ends at one o'clock: until then it used yesterday's numbers.
        (at(2026, 7, 1, 23, 30), at(2026, 7, 2, 0, 30), True),
        (at(2026, 7, 1, 23, 30), at(2026, 7, 2, 12), True),
        (at(2026, 7, 1, 0, 30), at(2026, 7, 1, 12), True),
        (at(2026, 7, 1, 0, 30), at(2026, 7, 2, 12), False),
        (at(2026, 7, 1, 12), at(2026, 7, 3, 12), False),
        # The day on which summer ends has 25 hours.
        (at(2026, 10, 25, 2, 30, fold=0), at(2026, 10, 25, 2, 30, fold=1), True),
        (at(2026, 10, 25, 12), at(2026, 10, 26, 12), False),
    ],
)
def test_a_row_goes_on_when_its_numbers_may_have_been_used_today(
    original: Original, saved: datetime, now: datetime, goes_on: bool
) -> None:
    row = IdServerRow("order_id", "a", 0, 500, int(saved.timestamp()))
    (standing,) = planned(original(), [row], now).rules[0].counters
    assert standing.goes_on is goes_on
    assert standing.bound == 501
    midnight = datetime(now.year, now.month, now.day)
    start = (midnight - datetime(1970, 1, 1)).total_seconds()
    assert (standing.cycle.start == start) is goes_on
    assert standing.cycle.start <= standing.shown < standing.cycle.end


def test_a_week_goes_on_over_its_monday(original: Original) -> None:
    path = original({"w": script(DATED, reset=7 * 86_400)})
    saved = int(at(2026, 11, 20, 12).timestamp())
    plan = planned(path, [IdServerRow("w", "a", 0, 500, saved)], at(2026, 11, 24, 12))
    assert plan.rules[0].counters[0].goes_on
    assert any("begins on Thursday" in notice for notice in plan.notices)
    assert not planned(path, [IdServerRow("w", "a", 0, 500, saved)], at(2026, 12, 1, 12)).rules[0].counters[0].goes_on


def test_a_rule_without_a_cycle_always_goes_on(original: Original) -> None:
    path = original({"n": script()})
    (standing,) = planned(path, [IdServerRow("n", "a", 0, 500, 0)], at(2026, 11, 21, 12)).rules[0].counters
    assert (standing.goes_on, standing.bound) == (True, 501)


def test_a_counter_near_its_end_does_not_begin_again(original: Original, counter_table: Any) -> None:
    from resty_django.ids.errors import Exhausted

    counter_table((0, 60, 0, "n", "a"), (0, -7, 0, "n", "b"))
    run(original({"n": script(high=49)}), database="original")
    with pytest.raises(Exhausted):
        next_id("n", "a")
    assert next_id("n", "b") == "N000000"


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 25), (1, 19)],
        [(0, 25)],
        [(0, 24), (1, 19), (2, 20), (3, 25)],
    ],
)
def test_rows_of_another_step_lift_all_nodes_above_what_was_given_out(
    original: Original, settings: Any, rows: list[tuple[int, int]]
) -> None:
    settings.RESTY_DJANGO = {"IDS": {"STEP": 3}}
    path = original({"n": script()}, id_step=3)
    original_rows = [IdServerRow("n", "a", node, value, 0) for node, value in rows]
    plan = planned(path, original_rows, at(2026, 11, 21, 12))
    assert sorted((s.node_offset, s.bound) for s in plan.rules[0].counters) == [(0, 27), (1, 28), (2, 26)]
    assert any("an id_step other than 3" in notice for notice in plan.notices)
    plan.apply()
    assert next_id("n", "a") == "N000027"


def test_rows_of_another_step_of_a_past_day_do_not_matter(original: Original) -> None:
    path = original(id_step=3)
    rows = [IdServerRow("order_id", "a", node, 25, 5) for node in range(5)]
    plan = planned(path, rows, at(2026, 11, 21, 12))
    assert len(plan.rules[0].counters) == 3
    assert not any(standing.goes_on for standing in plan.rules[0].counters)


# --- a second time -------------------------------------------------------------------------------------------------


def test_an_update_replaces_rules_and_sets_no_counter_back(original: Original, counter_table: Any) -> None:
    path = original({"n": script()})
    counter_table((0, 100, 0, "n", "a"), (0, 100, 0, "n", "b"), (0, 5, 0, "n", "c"))
    run(path, database="original")
    assert next_id("n", "a") == "N000101"
    version = IdRule.objects.get().version
    with connections["original"].cursor() as cursor:
        cursor.execute("UPDATE counter SET counter = 5000 WHERE app_name = 'b'")
        cursor.execute("INSERT INTO counter VALUES (0, 9, 0, 'n', 'd')")
    service.stop()
    original({"n": script(NUMBER.replace("N%", "M%"))})
    output = run(path, "--update", database="original")
    assert "already has 3 of these counters" in output
    assert "The text of IDs changes" in output
    assert IdRule.objects.get().version > version
    assert [next_id("n", app) for app in "abcd"] == ["M000102", "M005001", "M000006", "M000010"]


def test_an_update_keeps_a_counter_of_a_later_cycle(original: Original, counter_table: Any) -> None:
    path = original()
    counter_table((0, 900, ahead() - 4 * 86_400, "order_id", "a"))
    run(path, database="original")
    first = [next_ids("order_id", 3, "a"), service.stop()][0]
    run(path, "--update", database="original")
    assert next_id("order_id", "a") not in first
    assert next_id("order_id", "a")[-6:] == "000004"


def test_an_update_under_another_step_is_refused(original: Original, counter_table: Any) -> None:
    path = original({"n": script()})
    counter_table((0, 100, 0, "n", "a"))
    run(path, database="original")
    original({"n": script()}, id_step=2)
    with pytest.raises(CommandError, match=r"step 1, but the configuration has id_step 2.*confirm_id_step"):
        run(path, "--update", database="original")


def test_a_counter_that_moves_between_look_and_write_ends_the_import(original: Original, counter_table: Any) -> None:
    path = original({"n": script()})
    counter_table((0, 100, 0, "n", "a"))
    run(path, database="original")
    plan = make_plan(read_config(path), read_rows("original"), update=True)
    next_id("n", "a")
    version = IdRule.objects.get().version
    with pytest.raises(Refused, match="moved during the import"):
        plan.apply()
    assert IdRule.objects.get().version == version
