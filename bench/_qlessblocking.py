"""How long single calls of the job queue hold the server, with many jobs there: `bench/qless.py --only blocking`.

The figure of a call is the time that the server's thread had a processor (of Linux), which other programs of a busy
machine do not prolong. What is measured has at most 100 jobs in a call, and is what holds the server longest: many jobs
that fall due, wait for each other, expire, have failed or have lost their locks at once. The rest of what a call leaves
is done by `tidy`, which is measured too.

The embedded server has the allocator of the C library, which now and then takes 100 ms for a command, whichever it is,
once some hundred thousand keys were deleted; servers from packages (`--server /usr/bin/redis-server`) have another one.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis

Call = tuple[Any, ...]

NOW = 1_400_000_000.0
GOAL = 10.0
"""Milliseconds at the 99th percentile."""
FAILED = 100_000
"""Jobs of one group of failures."""
DUE = 100_000
TIED = 10_000
"""Jobs that wait for one, or that one waits for."""
EXPIRED = 20_000
QUEUES = 1_000
PART = 100
ATTEMPTS = 200


class Blocking:
    """A store of many jobs, and the times of calls by what they do."""

    def __init__(self, client: redis.Redis, source: str, jobs: int) -> None:
        self.client = client
        self.sha = client.script_load(source)
        self.jobs = jobs
        self.now = NOW
        self.times: dict[str, list[float]] = {}
        process = client.info("server")["process_id"]
        self._schedstat = Path(f"/proc/{process}/task/{process}/schedstat")
        client.config_set("slowlog-log-slower-than", -1)

    def send(self, calls: Iterable[Call]) -> list[Any]:
        """The replies, unmeasured; sent by a hundred."""
        replies: list[Any] = []
        pipe = self.client.pipeline(transaction=False)
        for name, *args in calls:
            pipe.evalsha(self.sha, 0, name, repr(self.now), *args)
            if len(pipe) >= PART:
                replies += pipe.execute()
        return replies + pipe.execute()

    def time(self, label: str, calls: Iterable[Call]) -> list[Any]:
        """The replies; the milliseconds of each call go to `times[label]`."""
        replies = []
        for name, *args in calls:
            before = self._processor()
            replies.append(self.client.evalsha(self.sha, 0, name, repr(self.now), *args))
            time.sleep(0.0002)  # until the server sleeps, and its time is counted
            self.times.setdefault(label, []).append(self._processor() - before)
        return replies

    def _processor(self) -> float:
        """Milliseconds that the thread of the server has had a processor."""
        return int(self._schedstat.read_text().split()[0]) / 1e6

    def finish(self, label: str) -> int:
        """Measure `tidy` until nothing is left; how many calls it took."""
        calls = 1
        while self.time(label, [("tidy", "w")])[0]:
            calls += 1
        return calls

    # --- the store ---

    def put(self, queue: str, jids: Iterable[str], delay: float = 0, options: str = "") -> None:
        names = list(jids)
        self.send(
            (
                "put.many",
                "w",
                queue,
                *(argument for jid in names[n : n + PART] for argument in (jid, "K", "{}", delay, options)),
            )
            for n in range(0, len(names), PART)
        )

    def pop(self, queue: str, count: int, worker: str = "w") -> list[str]:
        replies = self.send(("pop", queue, worker, PART) for _ in range(0, count, PART))
        return [job["jid"] for reply in replies for job in json.loads(reply)]

    def fill(self) -> None:
        """Create the jobs: some complete, some failed, some scheduled; the others wait."""
        self.send([("config.set", "jobs-history-count", 1_000_000)])
        self.put("old", (f"complete-{n}" for n in range(EXPIRED)))
        self.send(("complete", jid, "w", "old", "{}") for jid in self.pop("old", EXPIRED))
        self.put("bad", (f"failed-{n}" for n in range(FAILED)))
        for n, jid in enumerate(self.pop("bad", FAILED)):
            self.now += n % 10 == 0  # ten a second
            self.send([("fail", jid, "w", "bad", "broken")])
        self.put("later", (f"later-{n}" for n in range(self.jobs // 10)), delay=1e9)
        self.put("big", (f"job-{n}" for n in range(self.jobs - self.jobs // 10 - FAILED - EXPIRED)))

    # --- what is measured ---

    def run(self) -> None:
        self.fill()
        for section in (self.usual, self.due, self.tied, self.failures, self.lists, self.locks, self.expiry):
            section()

    def usual(self) -> None:
        jids = [f"usual-{n}" for n in range(ATTEMPTS)]
        tags = ("tags", '["a","b","c"]')
        self.time("put", (("put", "w", "big", jid, "K", "{}", 0, "priority", 5, *tags) for jid in jids))
        self.time(
            "put.many of 100",
            (
                (
                    "put.many",
                    "w",
                    "big",
                    *(part for n in range(PART) for part in (f"many-{m}-{n}", "K", "{}", 0, '{"tags":["a"]}')),
                )
                for m in range(ATTEMPTS)
            ),
        )
        popped = self.time("pop of 1", [("pop", "big", "w", 1)] * ATTEMPTS)
        held = [json.loads(reply)[0]["jid"] for reply in popped]
        self.time("heartbeat", (("heartbeat", jid, "w") for jid in held))
        self.time("progress", (("progress", jid, "w", 0.5) for jid in held))
        self.time("log", (("log", jid, "hello") for jid in held[:50] for _ in range(100)))
        self.time("multiget of 50, with 100 entries of history", [("multiget", *held[:50])] * 50)
        self.time("complete", (("complete", jid, "w", "big", "{}") for jid in held))
        many = [json.loads(reply) for reply in self.time("pop of 100", [("pop", "big", "w", PART)] * ATTEMPTS)]
        some = [[job["jid"] for job in jobs] for jobs in many]
        self.time("timeout of 100", (("timeout", *jids) for jids in some[:50]))
        self.time("cancel of 100", (("cancel", *jids) for jids in some[50:150]))
        self.time("retry", (("retry", jid, "big", "w", 0) for jid in some[150]))
        self.time("fail", (("fail", jid, "w", f"group-{n}", "broken") for n, jid in enumerate(some[151])))
        self.time("priority", (("priority", f"later-{n}", 3) for n in range(ATTEMPTS)))
        self.time("tag add", (("tag", "add", f"later-{n}", "x", "y") for n in range(ATTEMPTS)))

    def due(self) -> None:
        self.put("due", (f"due-{n}" for n in range(DUE)), delay=10)
        self.send(("recur", "due", f"recurring-{n}", "K", "{}", "interval", 1, 0) for n in range(1000))
        self.now += 100
        self.time("queues of one, 100000 due", [("queues", "due")] * 100)
        self.time("jobs scheduled, 100000 due", [("jobs", "scheduled", "due", 0, 100)] * 100)
        self.time("peek of 100, 100000 due", [("peek", "due", PART)] * 100)
        self.time("pop of 1, 100000 due", [("pop", "due", "w", 1)] * 100)
        self.time("pop of 100, 100000 due", [("pop", "due", "w", PART)] * 100)

    def tied(self) -> None:
        for attempt in range(3):
            first, many = f"first-{attempt}", [f"tied-{attempt}-{n}" for n in range(TIED)]
            self.put("first", [first])
            self.put("tied", many, options=json.dumps({"depends": [first]}))
            self.pop("first", 1)
            self.time("complete, 10000 dependents", [("complete", first, "w", "first", "{}")])
            self.finish("tidy, dependents")
            last = f"last-{attempt}"
            self.time(
                "stage of 1000 dependencies", (("stage", last, *many[n : n + 1000]) for n in range(0, TIED, 1000))
            )
            self.time("put, 10000 dependencies staged", [("put", "w", "last", last, "K", "{}", 0, "staged", 1)])
            self.finish("tidy, dependencies")
            self.time("get, 10000 dependencies", [("get", last)])
            self.time("depends off all, 10000", [("depends", last, "off", "all")])
            self.finish("tidy, dependencies")
            self.send([("put", "w", "last", last, "K", "{}", 0, "depends", json.dumps(many))])
            self.finish("tidy, dependencies")
            self.time("cancel, 10000 dependencies", [("cancel", last)])
            self.finish("tidy, dependencies")
            self.outcomes(attempt)

    def outcomes(self, attempt: int) -> None:
        """A failure that 10000 jobs follow, its retry, and a group of 10000 members."""
        first, queue, group = f"cause-{attempt}", f"outcomes-{attempt}", f"group-{attempt}"
        self.put(queue, [first])
        followers = (f"follows-{attempt}-{n}" for n in range(TIED))
        self.put(queue, followers, options=json.dumps({"depends": [first], "outcome": {"policy": "fail"}}))
        self.pop(queue, 1)
        self.time("fail, 10000 dependents", [("fail", first, "w", "x", "broken")])
        self.finish("tidy, a failure")
        self.time("requeue, 10000 dependents", [("requeue", "w", queue, first, "K", "{}", 0)])
        self.finish("tidy, a retry")
        members = [f"member-{attempt}-{n}" for n in range(TIED)]
        self.send([("group.open", group, "")])
        self.put(f"{queue}-members", members, options=json.dumps({"outcome": {"group": group}}))
        self.time(
            "put, a group of 10000", [("put", "w", "last", f"body-{attempt}", "K", "{}", 0, "depends", f'["{group}"]')]
        )
        self.send([("group.close", group)])
        self.pop(f"{queue}-members", TIED)
        self.time(
            "complete of a member, of 10000", (("complete", jid, "w", f"{queue}-members", "{}") for jid in members)
        )

    def failures(self) -> None:
        failed = [f"failed-{n}" for n in range(FAILED)]
        random.Random(1).shuffle(failed)
        singles, remaining = failed[:ATTEMPTS], failed[ATTEMPTS:]
        self.time("put of a failed job, of 100000", (("put", "w", "big", jid, "K", "{}", 0) for jid in singles))
        chunks = [remaining[n * PART : n * PART + PART] for n in range(60)]
        self.time("cancel of 50 failed, of 100000", (("cancel", *jids[:50]) for jids in chunks[:30]))
        self.time(
            "put.many of 100 failed, of 100000",
            (
                ("put.many", "w", "big", *(part for jid in jids for part in (jid, "K", "{}", 0, "")))
                for jids in chunks[30:]
            ),
        )
        self.time("unfail of 100, of 100000", [("unfail", "big", "bad", PART)] * ATTEMPTS)
        self.time("failed, a page of 100000", (("failed", "bad", 1000 * n, PART) for n in range(90)))

    def lists(self) -> None:
        for n in range(QUEUES):
            self.put(f"queue-{n}", [f"of-queue-{n}"])
        self.time(
            "page queues, 1000 queues", (("page", "queues", n, PART) for n in range(0, QUEUES, PART) for _ in "ab")
        )
        self.time("queues of all 1000 (other clients)", [("queues",)] * 10)
        self.send(("pop", "none", f"worker-{n}", 1) for n in range(2000))
        self.time("page workers", (("page", "workers", n, PART) for n in range(0, 2000, PART)))
        self.now += 90_000
        self.time("page workers, 2000 silent", [("page", "workers", 0, PART)] * 20)
        self.time("page failed", (("page", "failed", 0, PART) for _ in range(20)))
        middle = self.jobs // 3
        for kind in ("waiting", "running", "stalled", "depends", "recurring"):
            self.time(f"jobs {kind}", (("jobs", kind, "big", middle, 1000) for _ in range(20)))
        self.time("jobs complete", [("jobs", "complete", 10_000, 1000)] * 20)
        self.time("jobs scheduled, later", [("jobs", "scheduled", "later", self.jobs // 20, 1000)] * 20)
        self.time("tag get, tag top", [("tag", "get", "a", 5000, 100), ("tag", "top")] * 20)
        self.time("search", (("search", "klass", "none", "cursor", f"1:{n}") for n in range(0, 100_000, 5000)))
        for command in ("stats", "length", "due"):
            self.time(command, [(command, "big", self.now)] * 20)

    def locks(self) -> None:
        self.put("lost", (f"lost-{n}" for n in range(10_000)))
        self.pop("lost", 10_000, "dead")
        self.now += 100
        self.time("pop of 100, locks have expired", [("pop", "lost", "w", PART)] * 100)
        self.now += 11
        self.time("pop of 100, locks are lost", [("pop", "lost", "w", PART)] * 100)

    def expiry(self) -> None:
        self.put("end", (f"end-{n}" for n in range(ATTEMPTS)))
        jids = self.pop("end", ATTEMPTS)
        self.send([("config.set", "jobs-history", 10)])
        self.time("complete, 20000 have expired", (("complete", jid, "w", "end", "{}") for jid in jids))
        self.finish("tidy, complete jobs have expired")
