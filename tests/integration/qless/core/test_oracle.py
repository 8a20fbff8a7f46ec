"""The core against the rules in plain Python: replies, events and every key, after every step."""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from redis import Redis

from tests.integration.qless.conftest import NOW, Core, CoreError, Events, text_of

from .oracle import Oracle, Refused, plain

pytestmark = [pytest.mark.redis, pytest.mark.contract]

JIDS = st.sampled_from(["a", "b", "c", "r-1", "r-2"])
QUEUES = st.sampled_from(["q", "q", "p"])
WORKERS = st.sampled_from(["v", "w"])
TAGS = st.lists(st.sampled_from(["x", "y", "z"]), max_size=3)
DATA = st.sampled_from(["{}", "[]", '{"a":[1,"é/\\""]}', "null", '"text"'])
MORE_DATA = st.sampled_from([(), ("{}",), ('["more"]',)])
DELAYS = st.sampled_from([0, 0, 0, 5, 60.5])
SPANS = st.sampled_from([0, 0, 0.25, 1, 10, 10, 60, 60, 61, 3601, 90000])
READ = {
    "get",
    "multiget",
    "pop",
    "peek",
    "failed",
    "queues",
    "stats",
    "workers",
    "track",
    "tag",
    "config.get",
    "recur.get",
}
STEPS = {
    **{
        "put": 6,
        "requeue": 1,
        "pop": 10,
        "peek": 1,
        "complete": 3,
        "complete_many": 2,
        "advance": 3,
        "fail": 2,
        "retry": 3,
        "heartbeat": 2,
    },
    **{
        "timeout": 1,
        "cancel": 2,
        "expire": 2,
        "priority": 1,
        "depends": 2,
        "tag": 1,
        "track": 2,
        "log": 1,
        "unfail": 2,
        "recur": 2,
    },
    **{"recur_update": 1, "unrecur": 1, "configure": 2, "pausing": 1, "look": 1, "by_anybody": 1},
}
"""How often each is chosen."""

WHOLE = """
local found = {}
for n, key in ipairs(redis.call('KEYS', 'ql:*')) do
  local kind = redis.call('TYPE', key).ok
  local words = {set = {'SMEMBERS'}, zset = {'ZRANGE', 0, -1, 'WITHSCORES'}, list = {'LRANGE', 0, -1}}
  local word = words[kind] or {'HGETALL'}
  if not string.find(key, '^ql:b:') and key ~= 'ql:unindexed' then
    found[#found + 1] = {key, kind, redis.call(word[1], key, unpack(word, 2))}
  end
end
return found
"""
"""Every key except the keys of the figures and of the jobs to index, which have their own tests."""
LISTS = r"ql:(q:.*-(work|locks|scheduled|depends)|completed|[ft]:.*|j:.*-depend(encies|ents))"
"""Keys that contain jids of existing jobs. The list of a worker may contain others: `timeout` leaves them there."""


class Both(RuleBasedStateMachine):
    """Each step is one command, on both sides, after some time."""

    client: Redis
    draw: Any
    most_depends = 2
    """Jobs that one is to wait for when it is moved on."""

    def __init__(self) -> None:
        super().__init__()
        self.client.flushdb()
        self.core = Core(self.client)
        self.events = Events(self.client)
        self.oracle = Oracle()
        self.now = NOW

    def teardown(self) -> None:
        self.events.heard.close()

    def call(self, command: str, *args: Any) -> None:
        self.core.now = self.now
        ours: Any
        theirs: Any
        try:
            ours = self.core(command, *args)
            if isinstance(ours, str) and command in READ and (command != "config.get" or not args):
                ours = json.loads(ours)
        except CoreError as error:
            ours = str(error)
        try:
            theirs = self.oracle.call(command, self.now, *args)
        except Refused as error:
            theirs = str(error)
        assert _unordered(ours) == _unordered(theirs), command
        self.compare()

    def compare(self) -> None:
        ours = {}
        for key, kind, content in text_of(self.client.eval(WHOLE, 0)):
            if kind in ("hash", "zset"):
                content = dict(zip(content[::2], content[1::2], strict=True))
            ours[key] = plain(key, set(content) if kind == "set" else content)
        assert ours == {key: plain(key, content) for key, content in self.oracle.keys.items()}
        listed = {jid for key, content in ours.items() if re.fullmatch(LISTS, key) for jid in content}
        assert {f"ql:j:{jid}" for jid in listed} <= ours.keys()  # of canceled jobs, nothing is left
        expected = [(channel, payload) for channel, payload in self.oracle.events if ":wake:" not in channel]
        wakes = [event for event in self.oracle.events if ":wake:" in event[0]]
        self.oracle.events.clear()
        assert self.events() == expected
        self.compare_wakes(self.events.wakes, wakes)

    def compare_wakes(self, ours: list[Any], theirs: list[Any]) -> None:
        assert sorted(ours) == sorted(theirs)

    @rule(
        span=SPANS,
        name=st.sampled_from([name for name, weight in STEPS.items() for _ in range(weight)]),
        data=st.data(),
    )
    def step(self, span: float, name: str, data: st.DataObject) -> None:
        self.now += span
        self.draw = data.draw
        getattr(self, name)()

    def put(self) -> None:
        options = {
            "priority": st.integers(-2, 2),
            "retries": st.integers(0, 2),
            "tags": TAGS.map(json.dumps),
            "depends": st.lists(JIDS, max_size=2).map(json.dumps),
        }
        chosen = self.draw(st.sets(st.sampled_from(sorted(options)), max_size=3))
        pairs = [argument for name in sorted(chosen) for argument in (name, self.draw(options[name]))]
        worker, queue, jid = self.draw(WORKERS), self.draw(QUEUES), self.draw(JIDS)
        self.call("put", worker, queue, jid, "Klass", self.draw(DATA), self.draw(DELAYS), *pairs)

    def requeue(self) -> None:
        self.call("requeue", self.draw(WORKERS), self.draw(QUEUES), self.draw(JIDS), "Other", "{}", 0)

    def pop(self) -> None:
        self.call("pop", self.draw(QUEUES), self.draw(WORKERS), self.draw(st.integers(0, 3)))

    def peek(self) -> None:
        self.call("peek", self.draw(QUEUES), self.draw(st.integers(0, 4)))

    def running(self) -> tuple[str, str, str]:
        """A running job with its worker and queue, or if there is none another one."""
        jobs = [job for key, job in sorted(self.oracle.keys.items()) if re.fullmatch(r"ql:j:\w+(-\d+)?", key)]
        running = [job for job in jobs if job["state"] == "running"] or jobs
        if not running:
            return "a", "w", "q"
        job = running[self.draw(st.integers(0, len(running) - 1))]
        return job["jid"], job["worker"] or "w", job["queue"] or "q"

    def complete(self) -> None:
        self.call("complete", *self.running(), self.draw(DATA))

    def complete_many(self) -> None:
        _, worker, queue = self.running()
        jids = [jid for jid in "abc" if self.oracle.keys.get(f"ql:j:{jid}", {}).get("state") == "running"]
        jids += self.draw(st.lists(st.sampled_from(jids or ["a"]), max_size=2))
        entries = [(jid, self.draw(DATA), "", "") for jid in jids]
        self.call("complete.many", worker, queue, *(argument for entry in entries for argument in entry))

    def advance(self) -> None:
        options = ["next", self.draw(QUEUES), "delay", self.draw(DELAYS)]
        depends = json.dumps(self.draw(st.lists(JIDS, max_size=self.most_depends)))
        self.call("complete", *self.running(), "{}", *options, "depends", depends)

    def fail(self) -> None:
        jid, worker, _ = self.running()
        self.call("fail", jid, worker, self.draw(st.sampled_from("gh")), 'it "broke"', *self.draw(MORE_DATA))

    def retry(self) -> None:
        jid, worker, _ = self.running()
        why = self.draw(st.sampled_from([(), ("g",), ("g", "again")]))
        self.call("retry", jid, self.draw(QUEUES), worker, self.draw(DELAYS), *why)

    def heartbeat(self) -> None:
        jid, worker, _ = self.running()
        self.call("heartbeat", jid, worker, *self.draw(MORE_DATA))

    def by_anybody(self) -> None:
        jid, worker, queue = self.draw(JIDS), self.draw(WORKERS), self.draw(QUEUES)
        self.call("complete", jid, worker, queue, "{}")
        self.call("heartbeat", jid, worker)
        self.call("retry", jid, queue, worker)
        self.call("fail", jid, worker, "g", "m")

    def timeout(self) -> None:
        self.call("timeout", self.running()[0])

    def cancel(self) -> None:
        self.call("cancel", *self.draw(st.lists(JIDS, min_size=1, max_size=3, unique=True)))

    def expire(self) -> None:
        state, group = self.draw(st.sampled_from(["failed", "complete"])), self.draw(st.sampled_from("gh"))
        self.call("oldest", state, group, self.draw(st.integers(0, 2)), self.draw(st.integers(1, 3)))
        jobs = self.oracle.call("oldest", self.now, state, group, 0, 10)
        known = [*zip(jobs[::3], jobs[2::3], strict=True)]
        times = st.sampled_from(sorted({at for _, at in known}) or ["0"])
        other = st.tuples(JIDS, times)
        chosen = self.draw(st.lists(st.sampled_from(known) | other if known else other, max_size=3))
        self.call("expire", state, *(value for job in chosen for value in job))

    def priority(self) -> None:
        self.call("priority", self.draw(JIDS), self.draw(st.integers(-3, 3)))

    def depends(self) -> None:
        blocked = [jid for jid in "abc" if self.oracle.keys.get(f"ql:j:{jid}", {}).get("state") == "depends"]
        jid = self.draw(st.sampled_from(blocked)) if blocked else self.draw(JIDS)
        others = st.lists(JIDS, min_size=1, max_size=2).map(tuple)
        self.call("depends", jid, *self.draw(st.just(("off", "all")) | others.map(lambda jids: ("on", *jids))))
        self.call("depends", jid, "off", *self.draw(others))

    def tag(self) -> None:
        self.call("tag", self.draw(st.sampled_from(["add", "remove"])), self.draw(JIDS), *self.draw(TAGS))

    def track(self) -> None:
        self.call("track", self.draw(st.sampled_from(["track", "track", "untrack"])), self.draw(JIDS))

    def log(self) -> None:
        data = self.draw(st.sampled_from([(), ('{"when":1,"b":2}',), ("{}",)]))
        self.call("log", self.draw(JIDS), 'say "hello"', *data)

    def unfail(self) -> None:
        groups = sorted(self.oracle.keys.get("ql:failures", ())) or ["g"]
        self.call("unfail", self.draw(QUEUES), self.draw(st.sampled_from(groups)), self.draw(st.integers(1, 3)))

    def recur(self) -> None:
        interval = self.draw(st.sampled_from([1, 10, 60.5]))
        options = ["tags", json.dumps(self.draw(TAGS)), "backlog", self.draw(st.integers(0, 2)), "retries", 1]
        self.call("recur", self.draw(QUEUES), "r", "Klass", "{}", "interval", interval, 2, *options)

    def recur_update(self) -> None:
        interval = self.draw(st.sampled_from([5, 20]))
        self.call("recur.update", "r", "interval", interval, "queue", self.draw(QUEUES))

    def unrecur(self) -> None:
        self.call("unrecur", "r")

    def configure(self) -> None:
        option, values = self.draw(
            st.sampled_from(
                [
                    *(("q-heartbeat", [3, 70]), ("heartbeat", [3, 70]), ("grace-period", [-5, 0, 3, 70])),
                    *(("q-max-concurrency", [1, 2]), ("jobs-history", [0, 70]), ("jobs-history-count", [0, 2])),
                    *(("max-job-history", [0, 3, 4]), ("max-worker-age", [10])),
                ]
            )
        )
        if self.draw(st.booleans()):
            self.call("config.set", option, self.draw(st.sampled_from(values)))
        else:
            self.call("config.unset", option)
        if option not in ("max-job-history", "max-worker-age"):
            self.call("config.get", option)

    def pausing(self) -> None:
        command = self.draw(st.sampled_from(["pause", "unpause", "unpause", "queue.forget", "worker.deregister"]))
        self.call(command, self.draw(WORKERS) if command == "worker.deregister" else "q")
        self.call("queues", "q")

    def look(self) -> None:
        jid, queue, worker = self.draw(JIDS), self.draw(QUEUES), self.draw(WORKERS)
        for command in ("queues", "workers", "failed", "track", "config.get"):
            self.call(command)
        for arguments in (
            *(("get", jid), ("multiget", "a", jid, "nobody"), ("queues", queue), ("length", queue)),
            *(("workers", worker), ("stats", queue, self.now), ("tag", "get", "x"), ("tag", "top")),
            *(("recur.get", "r"), ("failed", "g"), ("jobs", "complete")),
        ):
            self.call(*arguments)
        for kind in ("running", "stalled", "scheduled", "depends", "recurring", "waiting"):
            self.call("jobs", kind, queue)


def _unordered(reply: Any) -> Any:
    """Sets of jids have no order, and which of several dependents an error names is not said."""
    if isinstance(reply, str):
        return re.sub(r"(is a dependency of) \S+", r"\1 one", reply)
    if isinstance(reply, list):
        return [_unordered(element) for element in reply]
    if isinstance(reply, dict):
        return {
            name: sorted(value) if name in ("dependents", "dependencies") and value else _unordered(value)
            for name, value in reply.items()
        }
    return reply


def run(client: Redis, examples: int, steps: int) -> None:
    machine = type("Both", (Both,), {"client": client})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=checks,
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(machine, settings=limits)


def test_core_and_rules_agree(valkey: Redis) -> None:
    run(valkey, examples=120, steps=40)


def test_a_job_expires_that_failed_on_its_way_to_another_queue(valkey: Redis) -> None:
    both: Any = type("Both", (Both,), {"client": valkey})()
    with closing(both.events.heard):
        both.call("put", "client", "q", "a", "Klass", "{}", 0, "retries", 0)
        both.call("pop", "q", "w", 1)
        both.call("retry", "a", "p", "w", 0)
        _, _, when = both.oracle.call("oldest", both.now, "failed", "failed-retries-p", 0, 1)
        both.call("expire", "failed", "a", when)
    assert "ql:s:stats:1399939200:q" not in both.oracle.keys


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_core_and_rules_agree_for_long(valkey: Redis) -> None:
    run(valkey, examples=1500, steps=60)
