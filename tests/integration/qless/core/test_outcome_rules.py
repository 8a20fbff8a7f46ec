"""Random jobs with callbacks, policies and groups, some of which another core ends, against a record of their ends."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from redis import Redis

from tests.integration.qless.conftest import NOW, Core, CoreError, Events

pytestmark = [pytest.mark.redis, pytest.mark.contract]

JIDS = ("a", "b", "c", "d", "e")
GROUPS = ("g", "h")
KINDS = {"complete": ("success", "complete"), "failed": ("failure", "complete")}
EVENTS = {"completed": "complete", "failed": "failed", "skipped": "skipped", "canceled": "canceled"}
STEPS = {
    **{"put": 8, "plain_put": 1, "requeue": 3, "complete": 6, "fail": 5, "unfail": 2, "cancel": 2, "depends": 2},
    **{"pace": 3, "open_group": 2, "close_group": 4, "join": 1, "move": 1},
    **{"foreign_put": 2, "foreign_complete": 2, "foreign_fail": 2, "foreign_delete": 1, "foreign_unfail": 1},
}
"""How often each is chosen."""


class Outcomes(RuleBasedStateMachine):
    """`puts[jid]` is the number of the put to which callbacks belong, None if they do not."""

    client: Redis
    step_size = 100

    def __init__(self) -> None:
        super().__init__()
        self.client.flushdb()
        self.core = Core(self.client)
        self.core.now = NOW
        if self.step_size != 100:
            text = self.core.text.replace("local STEP = 100", f"local STEP = {self.step_size}")
            assert text != self.core.text
            self.core.text, self.core.sha = text, self.client.script_load(text)
        self.events = Events(self.client)
        self.numbers = 0
        self.puts: dict[str, int | None] = {}
        self.ends: Counter[tuple[int, str]] = Counter()
        self.finals: dict[int, str] = {}
        """How a put ended for good: complete, skipped or canceled."""
        self.groups: dict[str, list[int]] = {}
        self.opened: dict[str, str] = {}
        self.owner: dict[int, str] = {}

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            self.events.heard.close()

    @rule(
        names=st.lists(
            st.sampled_from([name for name, weight in STEPS.items() for _ in range(weight)]), min_size=1, max_size=3
        ),
        data=st.data(),
    )
    def step(self, names: list[str], data: st.DataObject) -> None:
        """Take some steps, and look at what has become of them. What another core does is noticed before the next."""
        self.draw = data.draw
        for name in names:
            note(name)
            if name.startswith("foreign"):
                self.settle()
            getattr(self, name)()
            self.record()
            if name.startswith("foreign"):
                self.settle()
        self.settle()
        self.check()

    # --- the record ---

    def end(self, jid: str, how: str) -> None:
        number = self.puts.get(jid)
        if number is None:
            return
        for kind in KINDS.get(how, ("complete",)):
            self.ends[number, kind] += 1
        if how != "failed":
            self.finals[number] = how
            self.puts[jid] = None

    def leave(self, jid: str) -> None:
        """The callbacks end with the put."""
        number = self.puts.pop(jid, None)
        if number is not None:
            self.finals[number] = "canceled"

    def record(self) -> None:
        for channel, event in self.events():
            if channel == "ql:log":
                note(f"    {event}")
            if channel == "ql:log" and event["event"] in EVENTS and event["jid"] in JIDS:
                self.end(event["jid"], EVENTS[event["event"]])

    def settle(self) -> None:
        """Let all deferred work be done, and all ends be noticed."""
        for _ in range(2):
            self.core.now += 601
            if self.opened:  # or they would be abandoned
                self.client.zadd("ql:open-groups", dict.fromkeys(self.opened.values(), self.core.now))
            calls = 0
            while self.core("tidy", "w"):
                calls += 1
                assert calls < 2000, "The deferred work never ends."
        self.record()

    # --- this core ---

    def call(self, *arguments: Any) -> Any:
        try:
            return self.core(*arguments)
        except CoreError:
            return None

    def outcome(self) -> tuple[int, dict[str, str]]:
        self.numbers += 1
        fields = {
            kind: json.dumps([[f"{self.numbers}-{kind}", "callbacks", "K", '{"a":1}']])
            for kind in ("success", "failure", "complete")
        }
        for name in ("policy", "policy:a", "policy:g"):
            policy = self.draw(st.sampled_from([None, "fail", "fail", "skip", "release", "wait"]))
            if policy and (name == "policy" or self.draw(st.booleans())):
                fields[name] = policy
        opened = [self.opened[name] for name in GROUPS if name in self.opened]
        if opened and self.draw(st.booleans()):
            fields["group"] = self.draw(st.sampled_from(opened))
        return self.numbers, fields

    def others(self, jid: str) -> list[str]:
        names = [*(name for name in JIDS if name != jid), *self.opened.values(), *list(self.groups)[-2:]]
        return self.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))

    def put(self, command: str = "put") -> None:
        jid, (number, fields) = self.draw(st.sampled_from(JIDS)), self.outcome()
        options = ["depends", others] if (others := self.others(jid)) else []
        self.record()
        if self.call(command, "c", "q", jid, "K", "{}", 0, *options, "outcome", fields) is not None:
            self.leave(jid)  # before what the events of this call end
            self.puts[jid] = number
            self.owner[number] = jid
            if "group" in fields:
                self.groups[fields["group"]].append(number)

    def plain_put(self) -> None:
        jid = self.draw(st.sampled_from(JIDS))
        if self.call("put", "c", "q", jid, "K", "{}", 0) is not None:
            self.leave(jid)

    def requeue(self) -> None:
        if self.draw(st.booleans()):
            self.put("requeue")
            return
        jid = self.draw(st.sampled_from(JIDS))
        options = ["depends", others] if (others := self.others(jid)) else []
        self.call("requeue", "c", "q", jid, "K", "{}", 0, *options)

    def pop(self) -> str | None:
        self.core.config(heartbeat=1e9)
        jids = self.core.popped()
        return jids[0] if jids else None

    def complete(self) -> None:
        if jid := self.pop():
            self.core.complete(jid)

    def fail(self) -> None:
        group = self.draw(st.sampled_from(["x", "y"]))
        if jid := self.pop():
            self.core("fail", jid, "w", group, "broken")

    def move(self) -> None:
        others = self.others("")
        if jid := self.pop():
            options = ["depends", others] if others else []
            self.call("complete", jid, "w", "q", "{}", "next", "q", *options)

    def unfail(self) -> None:
        group = self.draw(st.sampled_from(["x", "y", "q-DependencyFailed"]))
        self.core("unfail", "q", group, self.draw(st.integers(1, 3)))

    def pace(self) -> None:
        group = self.draw(st.sampled_from(["x", "y", "q-DependencyFailed"]))
        self.core("pace", group, self.draw(st.sampled_from([0, 5, 100])))

    def cancel(self) -> None:
        self.call("cancel", *self.draw(st.lists(st.sampled_from(JIDS), min_size=1, max_size=3, unique=True)))

    def depends(self) -> None:
        jid = self.draw(st.sampled_from(JIDS))
        self.call("depends", jid, "on", *(self.others(jid) or ["nobody"]))

    def open_group(self) -> None:
        name = self.draw(st.sampled_from(GROUPS))
        if name not in self.opened:
            group = f"{name}-{len(self.groups)}"
            callback = json.dumps([[f"{group}-callback", "callbacks", "K", "{}"]])
            self.core("group.open", group, name, "complete", callback)
            self.opened[name] = group
            self.groups[group] = []

    def close_group(self) -> None:
        if self.opened:
            group = self.opened.pop(self.draw(st.sampled_from(sorted(self.opened))))
            self.core("group.close", group)

    def join(self) -> None:
        """A unique job that exists becomes a member, too."""
        jid, opened = self.draw(st.sampled_from(JIDS)), list(self.opened.values())
        number = self.puts.get(jid)
        if number is not None and opened:
            group = opened[0]
            if number not in self.groups[group]:
                self.core("put", "c", "q", jid, "K", "{}", 0, "unique", "ever", "outcome", {"group": group})
                self.groups[group].append(number)

    # --- another core, by what it writes ---

    def chosen(self, *states: str) -> str | None:
        first = self.draw(st.integers(0, len(JIDS) - 1))
        return next((jid for jid in JIDS[first:] + JIDS[:first] if self.state(jid) in states), None)

    def state(self, jid: str) -> str | None:
        return self.core.hash(f"j:{jid}").get("state")

    def leave_failures(self, jid: str) -> None:
        failure = self.core.hash(f"j:{jid}").get("failure") or "{}"
        group = json.loads(failure).get("group")
        if self.state(jid) == "failed" and group:
            self.client.lrem(f"ql:f:{group}", 0, jid)
            if not self.client.exists(f"ql:f:{group}"):
                self.client.srem("ql:failures", group)

    def leave_queue(self, jid: str) -> None:
        for suffix in ("work", "locks", "depends", "scheduled"):
            self.client.zrem(f"ql:q:q-{suffix}", jid)
        self.client.zrem("ql:w:w:jobs", jid)

    def foreign_put(self, *states: str) -> None:
        if not (jid := self.chosen(*(states or ("waiting", "running", "failed", "complete", "depends")))):
            return
        self.leave_failures(jid)
        self.leave_queue(jid)
        self.client.zrem("ql:completed", jid)
        self.client.rpush(f"ql:j:{jid}-history", f'[{int(self.core.now)},"put",{{"q":"q"}}]')
        waits = self.client.exists(f"ql:j:{jid}-dependencies") and not states
        values = {"state": "depends" if waits else "waiting", "worker": "", "queue": "q", "expires": 0}
        self.client.hset(f"ql:j:{jid}", mapping=values)
        self.client.zadd(f"ql:q:q-{'depends' if waits else 'work'}", {jid: 0})
        self.leave(jid)

    def foreign_unfail(self) -> None:
        self.foreign_put("failed")

    def foreign_complete(self) -> None:
        if not (jid := self.chosen("waiting", "running")):
            return
        self.leave_queue(jid)
        self.client.hset(f"ql:j:{jid}", mapping={"state": "complete", "queue": "", "worker": "", "failure": "{}"})
        self.client.zadd("ql:completed", {jid: self.core.now})
        for name in self.client.smembers(f"ql:j:{jid}-dependents"):
            other = name.decode()
            self.client.srem(f"ql:j:{other}-dependencies", jid)
            if not self.client.exists(f"ql:j:{other}-dependencies") and self.state(other):
                self.client.zrem("ql:q:q-depends", other)
                self.client.zadd("ql:q:q-work", {other: 0})
                self.client.hset(f"ql:j:{other}", "state", "waiting")
        self.client.delete(f"ql:j:{jid}-dependents")
        self.end(jid, "complete")

    def foreign_fail(self) -> None:
        if not (jid := self.chosen("waiting", "running")):
            return
        self.leave_queue(jid)
        failure = json.dumps({"group": "x", "message": "m", "when": int(self.core.now), "worker": "r"})
        self.client.hset(f"ql:j:{jid}", mapping={"state": "failed", "failure": failure, "worker": "", "expires": ""})
        self.client.lpush("ql:f:x", jid)
        self.client.sadd("ql:failures", "x")
        self.end(jid, "failed")

    def foreign_delete(self) -> None:
        if not (jid := self.chosen("waiting", "running", "failed", "depends")):
            return
        self.leave_failures(jid)
        self.leave_queue(jid)
        for other in self.client.smembers(f"ql:j:{jid}-dependencies"):
            self.client.srem(f"ql:j:{other.decode()}-dependents", jid)
        self.client.delete(f"ql:j:{jid}", f"ql:j:{jid}-history", f"ql:j:{jid}-dependencies")
        self.end(jid, "canceled")

    # --- what always holds ---

    def check(self) -> None:
        states = {jid: state for jid in JIDS if (state := self.state(jid))}
        self.check_callbacks()
        self.check_failures(states)
        groups = self.check_groups(states)
        self.check_waiting(states, groups)
        assert self.client.keys("ql:p:*") == []
        assert not self.client.exists("ql:pending")

    def check_callbacks(self) -> None:
        counts: Counter[tuple[int, str]] = Counter()
        for key in self.client.keys("ql:j:*-*"):
            words = key.decode().removeprefix("ql:j:").split("-")
            if words[0].isdigit() and "history" not in words:
                counts[int(words[0]), words[1]] += 1
        assert counts == +self.ends

    def check_failures(self, states: dict[str, str]) -> None:
        listed = [jid.decode() for key in self.client.keys("ql:f:*") for jid in self.client.lrange(key, 0, -1)]
        assert sorted(listed) == sorted(jid for jid, state in states.items() if state == "failed")
        names = {key.decode().removeprefix("ql:f:") for key in self.client.keys("ql:f:*")}
        assert names == {name.decode() for name in self.client.smembers("ql:failures")}

    def check_groups(self, states: dict[str, str]) -> dict[str, Any]:
        groups = {}
        for group, numbers in self.groups.items():
            stored = self.core.json("group.get", group)
            groups[group] = stored
            counts = Counter(self.finals.get(number) or self.failed(number, states) for number in numbers)
            expected = {
                "done": counts["complete"],
                **{name: counts[name] for name in ("failed", "skipped", "canceled")},
            }
            assert {name: stored[name] for name in expected} == expected, group
            assert (stored["total"], stored["left"]) == (len(numbers), counts[None])
            failed = {
                self.owner[number] for number in numbers if number not in self.finals and self.failed(number, states)
            }
            assert stored["reason"] in (failed or {False}), group
            if group in self.opened.values():
                assert stored["state"] == "open"
            elif counts[None]:
                assert stored["state"] == "running"
            else:
                assert stored["state"] == ("failed" if counts["failed"] + counts["canceled"] else "complete")
        return groups

    def failed(self, number: int, states: dict[str, str]) -> str | None:
        return "failed" if states[self.owner[number]] == "failed" else None

    def check_waiting(self, states: dict[str, str], groups: dict[str, Any]) -> None:
        assert set(self.core.zset("q:q-depends")) == {jid for jid, state in states.items() if state == "depends"}
        for jid, state in states.items():
            fields = self.core.hash(f"o:{jid}")
            assert fields or self.puts.get(jid) is None, jid  # jobs of a paced retry have some, too
            others = {name.decode() for name in self.client.smembers(f"ql:j:{jid}-dependencies")}
            assert state != "depends" or others, jid
            failing = False
            for other in others:
                policy = fields.get(f"policy:{other}") or fields.get("policy", "wait")
                skipped = states.get(other) == "complete" and self.client.hexists(f"ql:x:{other}", "skipped")
                broken = skipped or states.get(other) == "failed" or (other not in states and other not in groups)
                if group := groups.get(other):
                    broken = group["failed"] + group["canceled"] > 0
                    if policy == "release" and group["state"] != "failed":
                        broken = False
                failing = failing or (broken and policy == "fail" and not skipped)
                if state == "depends":
                    assert not broken or (policy == "wait" and not skipped), (jid, other, policy)
                    assert self.client.sismember(f"ql:j:{other}-dependents", jid), (jid, other)
            assert state != "failed" or "blocked" not in fields or failing, jid

    def finish(self) -> None:
        """Once all has ended, nothing is left."""
        self.draw = lambda _: None
        self.settle()
        self.check()
        for group in self.opened.values():
            self.core("group.close", group)
        self.opened.clear()
        for group in ("x", "y", "q-DependencyFailed"):
            self.core("pace", group, 0)
        self.settle()
        jids = [jid for jid in JIDS if self.state(jid) not in (None, "complete")]
        if jids:
            self.core("cancel", *jids)
        self.settle()
        self.check()
        self.core.now += 9 * 86400
        for _ in range(3):
            self.settle()
        for pattern in ("ql:o:*", "ql:outcomes", "ql:p:*", "ql:pending", "ql:*groups", "ql:g:*", "ql:j:*-dependen*"):
            assert self.client.keys(pattern) == [], pattern


def run_machine(client: Redis, examples: int, steps: int, step_size: int = 100, same: bool = False) -> None:
    machine = type("Outcomes", (Outcomes,), {"client": client, "step_size": step_size})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=same,
        database=None,
        suppress_health_check=checks,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(machine, settings=limits)


@pytest.mark.parametrize("step_size", [100, 1])
def test_every_end_has_its_consequences(valkey: Redis, step_size: int) -> None:
    """The same jobs in each run. The long test makes up new ones."""
    run_machine(valkey, examples=25, steps=15, step_size=step_size, same=True)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step_size", [100, 1])
def test_every_end_has_its_consequences_for_long(valkey: Redis, step_size: int) -> None:
    run_machine(valkey, examples=1000, steps=40, step_size=step_size)
