"""Common parts of the commands of the oracle."""

from __future__ import annotations

import json
import math
from typing import Any

from .rules import appended, bin_of, measured, score
from .store import Refused, Store, short

DEFAULTS: dict[str, Any] = {
    "application": "qless",
    "heartbeat": 60,
    "grace-period": 10,
    "jobs-history": 604800,
    "jobs-history-count": 50000,
    "stats-history": 30,
    "histogram-history": 7,
}
UNLISTED = {"max-job-history": 100, "max-worker-age": 86400}


class Base(Store):
    def option(self, name: str) -> Any:
        value = self.hash("ql:config").get(name)
        return float(value) if value is not None else {**DEFAULTS, **UNLISTED}.get(name)

    def lease(self, queue: str) -> float:
        return float(self.option(f"{queue}-heartbeat") or self.option("heartbeat"))

    def job(self, jid: str) -> dict[str, Any]:
        return self.hash(f"ql:j:{jid}")

    def exists(self, jid: str) -> bool:
        return bool(self.keys.get(f"ql:j:{jid}"))

    def log(self, event: str, /, **payload: Any) -> None:
        self.publish("ql:log", {"event": event, **payload})

    def tell(self, worker: str, event: str, /, **payload: Any) -> None:
        self.publish(f"ql:w:{worker}", {"event": event, **payload})

    def lock_lost(self, jid: str, worker: str) -> None:
        self.tell(worker, "lock_lost", jid=jid, worker=worker)
        self.log("lock_lost", jid=jid, worker=worker)

    def tracked(self, jid: str, channel: str) -> None:
        if jid in self.zset("ql:tracked"):
            self.publish(f"ql:{channel}", jid)

    def wake(self, queue: str, due: float) -> None:
        self.publish(f"ql:wake:{queue}", due)

    def happened(self, jid: str, now: float, what: str, extra: Any = None) -> None:
        entry = [math.floor(now), what, extra] if extra else [math.floor(now), what]
        appended(self.list(f"ql:j:{jid}-history"), entry, int(self.option("max-job-history")))

    def enqueue(self, queue: str, jid: str, now: float) -> None:
        self.zset(f"ql:q:{queue}-work")[jid] = score(self.job(jid)["priority"], now)

    def out_of(self, queue: str, jid: str, *places: str) -> None:
        for suffix in places or ("work", "locks", "scheduled"):
            self.zset(f"ql:q:{queue}-{suffix}").pop(jid, None)

    def register(self, queue: str, now: float) -> None:
        self.zset("ql:queues").setdefault(queue, now)

    def held(self, worker: str) -> dict[str, Any]:
        return self.zset(f"ql:w:{worker}:jobs")

    def tag_index(self, jid: str, tags: list[str], now: float) -> None:
        for tag in tags:
            self.zset(f"ql:t:{tag}")[jid] = now
            self.zset("ql:tags")[tag] = self.zset("ql:tags").get(tag, 0) + 1

    def untag_index(self, jid: str, tags: list[str]) -> None:
        for tag in tags:
            self.zset(f"ql:t:{tag}").pop(jid, None)
            self.zset("ql:tags")[tag] = self.zset("ql:tags").get(tag, 0) - 1

    def count(self, queue: str, at: float, field: str, by: int = 1) -> None:
        stats = self.hash(f"ql:s:stats:{bin_of(at)}:{queue}")
        stats[field] = stats.get(field, 0) + by

    def measure(self, kind: str, queue: str, now: float, began: float) -> None:
        measured(self.hash(f"ql:s:{kind}:{bin_of(now)}:{queue}"), now - began)

    def link(self, jid: str, others: list[str]) -> None:
        for dependency in others:
            if dependency == jid or (self.exists(dependency) and self.job(dependency)["state"] != "complete"):
                self.set(f"ql:j:{jid}-dependencies").add(dependency)
                self.set(f"ql:j:{dependency}-dependents").add(jid)

    def unlink(self, jid: str, dependency: str) -> None:
        self.set(f"ql:j:{jid}-dependencies").discard(dependency)
        self.set(f"ql:j:{dependency}-dependents").discard(jid)

    def sink(self, jid: str, queue: str, now: float, failure: dict[str, Any], **extra: Any) -> None:
        group = failure["group"]
        self.happened(jid, now, "failed", {"group": group, **extra})
        self.job(jid).update(state="failed", worker="", expires="", failure=failure)
        self.set("ql:failures").add(group)
        self.list(f"ql:f:{group}").insert(0, jid)
        self.count(queue, now, "failures")
        self.count(queue, now, "failed")

    def unsink(self, jid: str, queue: str, *, also_old: bool = True) -> None:
        failure = self.job(jid)["failure"]
        group = self.list(f"ql:f:{failure['group']}")
        if jid in group:
            group.remove(jid)
        if not group:
            self.set("ql:failures").discard(failure["group"])
        if also_old or self.keys.get(f"ql:s:stats:{bin_of(failure['when'])}:{queue}"):
            self.count(queue, failure["when"], "failed", -1)

    @staticmethod
    def exhausted(queue: str, group: str, now: float) -> dict[str, Any]:
        message = f'Job exhausted retries in queue "{queue}"'
        return {"group": group, "message": message, "when": short(now), "worker": ""}

    def shown(self, jid: str) -> dict[str, Any]:
        job = self.job(jid)
        return {
            **{name: job[name] for name in ("jid", "klass", "state", "queue", "worker", "data")},
            **{name: short(job[name] or 0) for name in ("priority", "retries", "expires")},
            "remaining": math.floor(job["remaining"]),
            "tags": job["tags"] or {},
            "dependents": self._members(f"ql:j:{jid}-dependents"),
            "dependencies": self._members(f"ql:j:{jid}-dependencies"),
            "history": [
                {**(entry[2] if len(entry) > 2 else {}), "when": entry[0], "what": entry[1]}
                for entry in self.list(f"ql:j:{jid}-history")
            ],
            "failure": job.get("failure", {}),
            "tracked": jid in self.zset("ql:tracked"),
            "spawned_from_jid": job.get("spawned_from_jid", False),
        }

    def _members(self, key: str) -> Any:
        return sorted(self.set(key)) or {}

    def running(self, title: str, jid: str, worker: str) -> dict[str, Any]:
        """The job, if that worker may end it."""
        if not self.exists(jid):
            raise Refused(f"{title}(): Job {jid} does not exist")
        job = self.job(jid)
        kind = "is not currently running" if title in ("Complete", "Retry") else "not currently running"
        if job["state"] != "running":
            raise Refused(f"{title}(): Job {jid} {kind}: {job['state']}")
        refusal = {
            "Complete": "has been handed out to another worker",
            "Retry": "has been given to another worker",
            "Fail": "running with another worker",
            "Heartbeat": "given out to another worker",
        }[title]
        if job["worker"] != worker:
            raise Refused(f"{title}(): Job {jid} {refusal}: {job['worker']}")
        return job


def options(args: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(args[::2], args[1::2], strict=True))


def decoded(text: str | None) -> list[str]:
    return list(json.loads(text)) if text else []
