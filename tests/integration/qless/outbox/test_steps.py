"""Random steps of owners, two deliverers and workers, some of which die or lose their server, against a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, note
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from redis import Redis

from resty_django.qless import Client, chain, client, group
from resty_django.qless.clients.default import use_clock
from resty_django.qless.clients.job import Job
from resty_django.qless.errors import QlessError
from resty_django.qless.models import OutboxEntry
from resty_django.qless.outbox import outbox
from resty_django.qless.outbox.delivery import Deliverer, Delivery
from resty_django.qless.tasks.message import dispatcher
from resty_django.qless.tasks.results import AsyncResult
from resty_django.redis.errors import StoreDown
from tests.integration.qless.conftest import Events, change_settings
from tests.integration.qless.outbox import shop
from tests.integration.qless.outbox.orders import book, notify, remind, ship

pytestmark = [pytest.mark.redis, pytest.mark.db, pytest.mark.django_db(transaction=True)]

State = OutboxEntry.State
after_commit = outbox._AfterCommit.run
START = 1_800_000_000.0
MAX_PAYLOAD = 400
KINDS = ("plain", "depends", "delayed", "chain", "group", "unique", "refused")


def forget_owner() -> None:
    """Let the next call be the first one of a new process."""
    outbox.default_outbox.cache_clear()
    dispatcher.cache_clear()


class Faulty(Client):
    """A client whose next pipeline may fail. `fault`: before it is sent, or after the server has carried it out."""

    fault = ""

    def call_many(self, requests: Any) -> list[Any]:
        fault, self.fault = self.fault, ""
        if fault == "before":
            raise StoreDown("refused")
        replies = super().call_many(requests)
        if fault == "after":
            raise StoreDown("no reply")
        return replies


@dataclass(slots=True)
class Process:
    """A deliverer, and its state between two steps."""

    deliverer: Deliverer
    claimed: list[OutboxEntry] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)


@dataclass(slots=True)
class Row:
    """A committed call. `after`: rows of which it comes later; `needs`: jobs for which it waits."""

    jids: list[str]
    kind: str
    after: list[Row]
    needs: list[str]
    puts_at_revoke: int | None = None
    """None: it was not revoked."""


class Steps(RuleBasedStateMachine):
    """`puts[jid]` is the number of puts that the server has announced."""

    redis: Redis
    url: str
    now = START
    taken: ClassVar[list[Any]] = []
    """What the commits since the last step leave to the owner."""

    def __init__(self) -> None:
        super().__init__()
        self.redis.flushdb()
        OutboxEntry.objects.all().delete()
        Steps.now = START
        self.taken.clear()
        forget_owner()
        self.client = Client(self.url, worker_name="w", clock=lambda: self.now)
        self.client.config.set("max-payload", MAX_PAYLOAD)
        self.processes = [Process(Deliverer(self._faulty(skew), "default")) for skew in (0.0, 25.0)]
        self.rows: list[Row] = []
        self.hooks: list[list[Any]] = []
        """What owners have to deliver, by transaction."""
        self.puts: Counter[str] = Counter()
        self.events = Events(self.redis)
        self.numbers = 0

    def _faulty(self, skew: float) -> Faulty:
        return Faulty(self.url, clock=lambda: self.now + skew)

    # --- owners ---

    def _call(self, kind: str) -> Row:
        self.numbers += 1
        after: list[Row] = []
        single = [row for row in self.rows if row.kind in ("plain", "delayed") and row.puts_at_revoke is None]
        if kind == "delayed":
            result = book.apply_async((self.numbers,), countdown=5.0)
        elif kind == "depends" and single:
            needs = single[-1 - self.numbers % 2 :]
            jids = [row.jids[0] for row in needs]
            return Row([notify.apply_async((self.numbers,), depends=jids).id], kind, after, jids)
        elif kind == "chain":
            last = chain(ship.si(self.numbers, 1), ship.si(self.numbers, 2)).delay()
            return Row([last.parent.id, last.id], kind, after, [])
        elif kind == "group":
            members = group(ship.si(self.numbers, 1), ship.si(self.numbers, 2)).delay()
            return Row([member.id for member in members], kind, after, [])
        elif kind == "unique":
            result = remind.delay()
        elif kind == "refused":
            result = book.apply_async((10**MAX_PAYLOAD,))
        else:
            result = book.delay(self.numbers)
        return Row([result.id], kind, after, [])

    def _written(self) -> None:
        """Take over what the commit has left to the owner."""
        if self.taken:
            self.hooks.append(self.taken.copy())
            self.taken.clear()

    @rule(kind=st.sampled_from(KINDS))
    def write_alone(self, kind: str) -> None:
        row = self._call(kind)
        self.rows.append(row)
        self._written()
        note(f"    {row.kind} {row.jids}")

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=3), end=st.sampled_from(["commit", "rollback"]))
    def write_in_a_transaction(self, kinds: list[str], end: str) -> None:
        before, rows = len(self.rows), []
        with transaction.atomic():
            for kind in kinds:
                row = self._call(kind)
                row.after = [other for other in rows if not other.needs]
                rows.append(row)
                self.rows.append(row)
            transaction.set_rollback(end == "rollback")
        if end == "rollback":
            del self.rows[before:]
        self._written()
        note(f"    {end} {[(row.kind, row.jids) for row in rows]}")

    @precondition(lambda self: self.hooks)
    @rule(index=st.integers(0, 9), fault=st.sampled_from(["", "", "before", "after"]))
    def owner_delivers(self, index: int, fault: str) -> None:
        hooks = self.hooks[index % len(self.hooks)]
        sender: Any = hooks[0].outbox
        sender.client = self._faulty(0.0)
        sender.client.fault = fault
        sender._breaker.retry_at = 0.0
        after_commit(hooks.pop(0))
        if not hooks:
            self.hooks.remove(hooks)
        self.record()

    @rule()
    def owners_die(self) -> None:
        self.hooks.clear()
        forget_owner()

    # --- deliverers ---

    @rule(which=st.integers(0, 1), limit=st.sampled_from([1, 2, 100]))
    def claim(self, which: int, limit: int) -> None:
        """Claim, and forget what it had claimed before."""
        process = self.processes[which]
        process.claimed = process.deliverer.claim()
        process.claimed = process.claimed[:limit]
        process.deliveries = []

    @precondition(lambda self: any(process.claimed for process in self.processes))
    @rule(which=st.integers(0, 1), fault=st.sampled_from(["", "", "before", "after"]))
    def send(self, which: int, fault: str) -> None:
        process = self.processes[which]
        client: Any = process.deliverer.client
        client.fault = fault
        process.deliveries = process.deliverer.send(process.claimed)
        client.fault = ""
        self.record()

    @precondition(lambda self: any(process.deliveries for process in self.processes))
    @rule(which=st.integers(0, 1))
    def settle(self, which: int) -> None:
        self.processes[which].deliverer.settle(self.processes[which].deliveries)

    @rule(which=st.integers(0, 1))
    def mark_and_die(self, which: int) -> None:
        process = self.processes[which]
        delivered = [delivery.entry.pk for delivery in process.deliveries if delivery.error is None]
        process.deliverer.mark(delivered[:1])
        self.deliverer_dies(which)

    @rule(which=st.integers(0, 1))
    def deliverer_dies(self, which: int) -> None:
        skew = 25.0 * which
        self.processes[which] = Process(Deliverer(self._faulty(skew), "default"))

    @rule(which=st.integers(0, 1))
    def run(self, which: int) -> None:
        self.processes[which].deliverer.run()
        self.record()

    @rule(seconds=st.sampled_from([1.0, 11.0, 61.0, 3600.0]))
    def time_passes(self, seconds: float) -> None:
        Steps.now += seconds

    @rule()
    def tidy(self) -> None:
        self.processes[0].deliverer.tidy()

    # --- jobs ---

    @rule(count=st.integers(1, 3))
    def jobs_run(self, count: int) -> None:
        popped: Any = self.client.queues["orders"].pop(count)
        for job in popped:
            assert isinstance(job, Job)
            job.complete()
        self.record()

    @rule(index=st.integers(0, 99))
    def job_is_canceled(self, index: int) -> None:
        """Cancel a job that was put: it must not come back."""
        put = sorted(self.puts)
        if put:
            jid = put[index % len(put)]
            job = self.client.jobs.get(jid)
            if isinstance(job, Job) and not job.dependents:
                job.cancel()
                note(f"    {jid}")
        self.record()

    @rule(index=st.integers(0, 99))
    def row_is_revoked(self, index: int) -> None:
        rows = [row for row in self.rows if row.kind in ("plain", "depends", "delayed", "refused")]
        if not rows:
            return
        row = rows[index % len(rows)]
        try:
            AsyncResult(row.jids[0], client=self.client).revoke()
        except QlessError as error:  # others depend on it
            note(f"    {error}")
            return
        finally:
            self.record()
        row.puts_at_revoke = self.puts[row.jids[0]]

    # --- what always holds ---

    def record(self) -> None:
        """Count what was put since the last call, and check its order."""
        for channel, event in self.events():
            if channel == "ql:log" and event["event"] == "put":
                self.check_put(event["jid"])

    def check_put(self, jid: str) -> None:
        self.puts[jid] += 1
        rows = [row for row in self.rows if jid in row.jids]
        assert rows, f"{jid} was rolled back"
        assert self.puts[jid] <= len(rows), f"{jid} was put {self.puts[jid]} times"
        if len(rows) > 1:
            return
        (row,) = rows
        assert row.puts_at_revoke is None, f"{jid} was discarded"
        assert jid == row.jids[0] or self.puts[row.jids[row.jids.index(jid) - 1]] == 1
        for other in row.needs:
            assert self.puts[other], f"{jid} was put before {other}"
        for earlier in row.after:
            is_over = earlier.puts_at_revoke is not None or earlier.kind in ("refused", "unique")
            assert is_over or self.puts[earlier.jids[0]], f"{jid} was put before {earlier.jids[0]}"

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.events.heard.close()

    def drain(self) -> None:
        self.client.config.set("max-payload", 0)
        OutboxEntry.objects.filter(state=State.REFUSED).update(state=State.WAITING)
        deliverer = Deliverer(self._faulty(25.0), "default")
        for _ in range(20):
            Steps.now += 61.0
            deliverer.run()
            if not OutboxEntry.objects.filter(state=State.WAITING).exists():
                break
        self.record()
        assert {*OutboxEntry.objects.values_list("state", flat=True)} <= {State.DELIVERED, State.DISCARDED}
        for row in self.rows:
            wanted = 1 if row.puts_at_revoke is None else row.puts_at_revoke
            assert row.kind == "unique" or all(self.puts[jid] == wanted for jid in row.jids), row
            assert self.puts[row.jids[0]] >= wanted


@pytest.fixture
def machine(valkey: Redis, valkey_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Steps]]:
    """The steps at a site with an outbox. What owners do after the commit is a step."""
    change_settings(settings, **shop.settings_for(valkey_url))
    earlier = use_clock(lambda: Steps.now)
    kind = type("Steps", (Steps,), {"redis": valkey, "url": valkey_url})
    monkeypatch.setattr(outbox._AfterCommit, "run", lambda hook: Steps.taken.append(hook))
    yield kind
    use_clock(earlier)
    client.close()


def run_machine(machine: type[Steps], examples: int, steps: int, same: bool = False) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    limits = hypothesis_settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=same,
        database=None,
        suppress_health_check=checks,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(machine, settings=limits)


def test_each_row_is_delivered_once(machine: type[Steps]) -> None:
    """The same steps in each run. The long test makes up new ones."""
    run_machine(machine, examples=200, steps=30, same=True)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_row_is_delivered_once_for_long(machine: type[Steps]) -> None:
    run_machine(machine, examples=1500, steps=50)
