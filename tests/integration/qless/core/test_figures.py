"""Figures by queue and class: buckets of minutes, hours and days, of a bounded size."""

from __future__ import annotations

import json
import time
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis import Redis

from resty_django.qless import Client
from resty_django.qless.clients.figures import UNITS, Durations, by_class, completed_by_queue, read_fields, summed
from tests.integration.qless.conftest import NOW, Core, CoreError, SkewedClient, pop

pytestmark = pytest.mark.contract

SPANS = st.lists(st.sampled_from([0, 1, 59, 61, 600, 3600, 5000, 40_000, 90_000, 700_000, 3_000_000]), max_size=25)


def fields(core: Core, unit: str, *names: str, now: float | None = None) -> Counter[str]:
    reply = core("figures", unit[0], int((core.now if now is None else now) // UNITS[unit]), *names)
    counts: Counter[str] = Counter()
    for name, value in zip(reply[::2], reply[1::2], strict=True):
        event, _, names_of_event = name.partition("\n")
        if event == "c":
            for part in value.split():
                counts[f"{part.partition('=')[0]}\n{names_of_event}"] += int(part.partition("=")[2])
        else:
            counts[name] += int(value)
    return counts


def run(core: Core, klass: str = "K", queue: str = "q", seconds: float = 0.0, *, fails: bool = False) -> None:
    core("put", "client", queue, "j", klass, "{}", 0)
    core.popped(queue=queue)
    core.now += seconds
    if fails:
        core("fail", "j", "w", "g", "m")
    else:
        core.complete(queue=queue)


def test_completions_pops_and_failures_are_counted_with_their_times(core: Core) -> None:
    core.put()
    core.now += 2
    core.popped()
    core.now += 0.5
    core.complete()
    run(core, "Other", "p", fails=True)
    for unit in UNITS:
        assert fields(core, unit) == {
            "w21\nq\nKlass": 1,  # 2^(21/2) ms = 1.45 s
            "r17\nq\nKlass": 1,  # 2^(17/2) ms = 0.36 s
            "w0\np\nOther": 1,
            "f\np\nOther": 1,
        }
        assert set(fields(core, unit, "p")) == {"w0\np\nOther", "f\np\nOther"}
        assert set(fields(core, unit, "", "Klass")) == {"w21\nq\nKlass", "r17\nq\nKlass"}
        assert fields(core, unit, "q", "Other") == {}
    assert fields(core, "minute", now=core.now - 60) == {}


def test_advances_takes_and_lost_locks_are_counted(core: Core) -> None:
    core.put()
    core("take", "j", "w")
    core.complete(next="p")
    core("put", "client", "p", "j", "Klass", "{}", 0, "retries", 0)
    core.popped(queue="p")
    core.config(**{"grace-period": 0})
    core.now += 61
    core.popped(queue="p")
    assert core.get()["state"] == "failed"
    assert fields(core, "hour") == {"w0\nq\nKlass": 1, "r0\nq\nKlass": 1, "w0\np\nKlass": 1, "f\np\nKlass": 1}


def test_names_are_matched_as_a_whole(core: Core) -> None:
    for queue in ("a*", "ab", "[a]", "a", "\\"):
        run(core, queue, queue)
    for queue in ("a*", "ab", "[a]", "a", "\\"):
        assert set(fields(core, "day", queue)) == {f"w0\n{queue}\n{queue}", f"r0\n{queue}\n{queue}"}
        assert fields(core, "day", queue) == fields(core, "day", "", queue)


@settings(deadline=None, max_examples=40)
@given(spans=SPANS)
@example(spans=[40_000, 600])  # the first minute of an hour that is open
def test_hours_and_days_are_the_sums_of_their_minutes(valkey_url: str, spans: list[int]) -> None:
    with Redis.from_url(valkey_url) as client:
        client.flushdb()
        core = Core(client)
        ends = []
        for span in spans:
            core.now += span
            run(core)
            ends.append(core.now)
        for unit, seconds in UNITS.items():
            for end in ends if unit != "minute" else [end for end in ends if end > core.now - 3600]:
                expected = sum(other // seconds == end // seconds for other in ends)
                assert fields(core, unit, now=end)["r0\nq\nK"] == expected


def test_a_minute_that_comes_after_its_hour_was_added_counts_in_its_day(core: Core) -> None:
    core.now = NOW - NOW % 86_400 + 60
    run(core)
    for _ in range(70):
        core.now += 120
        run(core)
    late, core.now = core.now, core.now - core.now % 86_400 + 30 * 60  # an hour that was added
    assert f"h{int(core.now // 3600)}" not in core.zset("b:open")
    core.now += 1  # no bucket of this minute
    run(core)
    core.now = late + 180
    for _ in range(3):
        run(core)
        core.now += 180
    assert fields(core, "day")["r0\nq\nK"] == 75


def test_late_minutes_are_added_once(core: Core) -> None:
    core.now = NOW - NOW % 3600
    for _ in range(200):
        run(core)
        core.now += 61
    day = sum((fields(core, "day", now=NOW + 86_400 * n) for n in range(2)), Counter())
    assert day["r0\nq\nK"] == 200
    assert len(core.zset("b:open")) <= 5


def test_the_number_of_fields_is_bounded(core: Core) -> None:
    for number in range(1100):
        core("put", "client", "q", f"j{number}", f"K{number}", "{}", 0)
    for _ in range(11):
        core.popped(count=100)
    minute = fields(core, "minute")
    assert len(minute) == 1001
    assert minute["w0\nq\n"] == 100
    assert sum(minute.values()) == 1100
    key = f"{core.prefix}b:m{int(core.now // 60)}"
    core.client.hset(key, mapping={f"r0\nq{number}\nC": 1 for number in range(2500)})
    run(core, "New", "new")
    assert fields(core, "minute", "new") == {}
    core.now += 180
    run(core, "New")
    hour = fields(core, "hour", now=core.now)
    assert core.client.hlen(f"{core.prefix}b:h{int((core.now - 180) // 3600)}") <= 2003
    assert sum(hour.values()) == 1100 + 2500 + 4


def test_the_counts_of_a_queue_do_not_depend_on_the_number_of_classes(core: Core, client: SkewedClient) -> None:
    client.skew = core.now - time.time()
    for number in range(1100):
        core("put", "client", "q", f"j{number}", f"K{number}", "{}", 0)
    for _ in range(11):
        for jid in core.popped(count=100):
            core.complete(jid)
    throughput = client.queues["q"].throughput()
    assert (sum(throughput.minutes), sum(throughput.hours), sum(throughput.days)) == (1100, 1100, 1100)


def test_long_names_count_without_the_class_or_both(core: Core) -> None:
    run(core, "K" * 1000)
    assert fields(core, "minute") == {"w0\nq\n": 1, "r0\nq\n": 1}
    core.now += 86_400
    run(core, "K", "q" * 1000)
    assert fields(core, "minute") == {"w0\n\n": 1, "r0\n\n": 1}


def test_buckets_expire(core: Core) -> None:
    run(core)
    minute, hour = f"b:m{int(core.now // 60)}", f"b:h{int(core.now // 3600)}"
    assert 31 * 86_400 < core.client.ttl(core.prefix + minute) <= 32 * 86_400
    core.now += 180
    run(core)
    assert 3600 < core.client.ttl(core.prefix + minute) <= 3900
    assert core.client.ttl(core.prefix + hour) > 31 * 86_400


def test_spans_that_have_ended_are_packed(core: Core) -> None:
    """A page reads one field for each queue and class, instead of one for each duration, too."""
    core.now = NOW - NOW % 86_400 + 600
    first = core.now
    for seconds in (0, 1, 2, 4, 8):
        run(core, seconds=seconds)
        run(core, "Other", seconds=seconds)
    before = {unit: fields(core, unit) for unit in UNITS}
    while core.now < first + 2 * 86_400:
        core.now += 600 if core.now < first + 7200 else 3600
        run(core, "Last")
    core.now = first
    for unit, seconds in UNITS.items():
        names = core.client.hkeys(f"{core.prefix}b:{unit[0]}{int(first // seconds)}")
        assert {name[:2] for name in names} == {b"c\n"}
        counted = fields(core, unit)
        assert {name: counted[name] for name in counted if not name.endswith("Last")} == before[unit]
        assert set(fields(core, unit, "", "Other")) == {name for name in before[unit] if name.endswith("Other")}
        counts = read_fields(core("figures", unit[0], int(first // seconds)))
        assert counts["q", "Other"].completed == 5
        assert counts["q", "Other"].runs.count == counts["q", "Other"].waits.count == 5


def test_late_events_of_a_packed_minute_count(core: Core) -> None:
    run(core)
    run(core, seconds=9)
    core.now += 180
    run(core)
    core.now -= 180
    minute = f"{core.prefix}b:m{int(core.now // 60)}"
    assert core.client.hkeys(minute) == [b"c\nq\nK"]
    run(core)
    assert fields(core, "minute")["r0\nq\nK"] == 2
    assert core.client.hlen(minute) > 1


def test_many_spans_are_read_in_one_call(core: Core) -> None:
    for klass in ("K", "L", "K"):
        run(core, klass)
        core.now += 60
    first = int(core.now // 60) - 4
    for names in (("", ""), ("", "K"), ("q", "L"), ("other", "")):
        expected = [core("figures", "m", first + number, *names) for number in range(5)]
        assert core("figures", "m", first, *names, 5) == expected
    assert len(core("figures", "m", first, "", "", 1000)) == 60
    assert len(core("figures", "h", int(core.now // 3600), "", "", 0)) == 1


def test_wrong_units_are_refused(core: Core) -> None:
    with pytest.raises(CoreError, match='Arg "unit" must be "m", "h" or "d": x'):
        core("figures", "x", 1)


# --- the client --------------------------------------------------------------------------------------------------


async def test_the_client_returns_spans(core: Core, client: Client) -> None:
    client.queues["q"].put("shop.Send", {}, jid="a")
    job = pop(client.queues["q"])
    job.complete()
    client.queues["q"].put("shop.Other", {}, jid="b")
    pop(client.queues["q"]).fail("g", "m")
    for unit, count in (("minute", 60), ("hour", 48), ("day", 30)):
        spans = client.figures.spans(unit, count)
        assert len(spans) == count
        assert {span.start - before.start for before, span in pairwise(spans)} == {UNITS[unit]}
        totals = summed(span.totals for span in spans)
        assert (totals.completed, totals.failed, totals.runs.count, totals.waits.count) == (1, 1, 1, 2)
        assert set(by_class(spans)) == {"shop.Send", "shop.Other"}
    (span,) = (span for span in await client.figures.aspans("minute", 60, klass="shop.Other") if span.by_name)
    assert set(span.by_name) == {("q", "shop.Other")}
    assert client.figures.spans("minute", 2, queue="other")[-1].by_name == {}


async def test_throughput_is_the_number_of_completed_jobs(core: Core, client: SkewedClient) -> None:
    core.now = NOW - NOW % 86_400
    for queue, ages in {"q": (1, 59 * 60, 47 * 3600, 29 * 86_400), "p": (1, 2, 3 * 3600)}.items():
        for age in ages:
            core.now -= age
            run(core, queue=queue)
            run(core, queue=queue, fails=True)
            core.now += age
    client.skew = core.now - time.time() - 1
    throughput = client.queues["q"].throughput()
    assert (len(throughput.minutes), len(throughput.hours), len(throughput.days)) == (60, 48, 30)
    assert (sum(throughput.minutes), sum(throughput.hours), sum(throughput.days)) == (2, 3, 4)
    assert (throughput.minutes[-1], throughput.hours[1], throughput.days[-1]) == (1, 1, 2)
    assert await client.queues["q"].athroughput() == throughput
    by_queue = completed_by_queue(client.figures.spans("minute", 60), ("p", "q", "none"))
    assert by_queue["q"] == throughput.minutes
    assert (by_queue["p"][-1], sum(by_queue["p"]), by_queue["none"]) == (2, 2, [0] * 60)


def test_percentiles_are_interpolated() -> None:
    durations = Durations({20: 50, 22: 50})  # 1.024 s to 1.448 s, and 2.048 s to 2.896 s
    assert durations.percentile(0.25) == pytest.approx((1.024 + 1.448) / 2, rel=1e-3)
    assert durations.percentile(0.5) == pytest.approx(1.448, rel=1e-3)
    assert durations.percentile(0.95) == pytest.approx(2.048 + 0.9 * 0.848, rel=1e-3)
    assert Durations({0: 4}).percentile(0.5) == pytest.approx(0.0007, abs=1e-4)
    assert Durations().percentile(0.5) is None


def test_unreadable_fields_are_skipped() -> None:
    assert read_fields(["x", "1", "r\nq\nK", "1", "r1\nq\nK", "?", "f\nq\nK", "2", "z9\nq\nK", "1"]).keys() == {
        ("q", "K")
    }
    assert json.dumps(read_fields([])) == "{}"
