"""The commands: `Oracle().call("pop", now, queue, worker, count)`."""

from __future__ import annotations

import json
from typing import Any

from .base import DEFAULTS, Base, decoded, options
from .ends import Ends
from .rules import bin_of, reported
from .store import Refused, short
from .waits import Waits


class Oracle(Waits, Ends, Base):
    """Replies as the core does, JSON read, empty lists as `{}`; raises `Refused`."""

    def call(self, command: str, now: float, *args: Any) -> Any:
        try:
            return getattr(self, "do_" + command.replace(".", "_"))(now, *args)
        finally:
            self.tidy()

    def do_get(self, now: float, jid: str) -> Any:
        return self.shown(jid) if self.exists(jid) else None

    def do_multiget(self, now: float, *jids: str) -> Any:
        return [self.shown(jid) for jid in jids if self.exists(jid)] or {}

    def do_config_set(self, now: float, option: str, value: Any) -> None:
        self.hash("ql:config")[option] = str(value)
        self.log("config_set", option=option, value=str(value))

    def do_config_unset(self, now: float, option: str) -> None:
        self.hash("ql:config").pop(option, None)
        self.log("config_unset", option=option)

    def do_config_get(self, now: float, *args: str) -> Any:
        values = {**DEFAULTS, **self.hash("ql:config")}
        return values.get(args[0]) if args else values

    def do_pause(self, now: float, *queues: str) -> None:
        self.set("ql:paused_queues").update(queues)

    def do_unpause(self, now: float, *queues: str) -> None:
        self.set("ql:paused_queues").difference_update(queues)
        for queue in queues:
            self.wake(queue, now)

    def do_queue_forget(self, now: float, *queues: str) -> None:
        for queue in queues:
            self.zset("ql:queues").pop(queue, None)

    def do_worker_deregister(self, now: float, *workers: str) -> None:
        for worker in workers:
            self.zset("ql:workers").pop(worker, None)

    def do_queues(self, now: float, *args: str) -> Any:
        if args:
            return self.counts(args[0], now)
        return [self.counts(queue, now) for queue, _ in self.ordered("ql:queues")] or {}

    def counts(self, queue: str, now: float) -> dict[str, Any]:
        self.bring_scheduled(queue, now)
        locks = self.zset(f"ql:q:{queue}-locks").values()
        stalled = sum(expires <= now for expires in locks)
        counts = {suffix: len(self.zset(f"ql:q:{queue}-{suffix}")) for suffix in ("scheduled", "depends")}
        return {
            "name": queue,
            "waiting": len(self.zset(f"ql:q:{queue}-work")),
            "stalled": stalled,
            "running": len(locks) - stalled,
            "recurring": len(self.zset(f"ql:q:{queue}-recur")),
            "paused": queue in self.set("ql:paused_queues"),
            **counts,
        }

    def do_length(self, now: float, queue: str) -> int:
        return sum(len(self.zset(f"ql:q:{queue}-{suffix}")) for suffix in ("locks", "work", "scheduled"))

    def do_jobs(self, now: float, kind: str, *args: Any) -> list[str]:
        queue = "" if kind == "complete" else args[0]
        offset, count = (*args[kind != "complete" :], 0, 25)[:2] if len(args) > 1 or kind == "complete" else (0, 25)
        if kind == "scheduled":
            self.bring_scheduled(queue, now)
        suffix = {"running": "locks", "stalled": "locks", "recurring": "recur", "waiting": "work"}.get(kind, kind)
        pairs = self.ordered("ql:completed" if kind == "complete" else f"ql:q:{queue}-{suffix}")
        if kind in ("complete", "waiting"):
            pairs.reverse()
        elif kind in ("running", "stalled"):
            pairs = [pair for pair in pairs if (pair[1] >= now if kind == "running" else pair[1] <= now)]
        end = None if count == -1 else offset + count
        return [jid for jid, _ in pairs[offset:end]]

    def do_workers(self, now: float, *args: str) -> Any:
        for worker, seen_at in self.ordered("ql:workers"):
            if seen_at <= now - self.option("max-worker-age"):
                del self.zset("ql:workers")[worker]
                self.keys.pop(f"ql:w:{worker}:jobs", None)
        if args:
            pairs = self.ordered(f"ql:w:{args[0]}:jobs")[::-1]
            return {
                "jobs": [jid for jid, at in pairs if now <= at <= now + 8640000] or {},
                "stalled": [jid for jid, at in pairs if 0 <= at <= now] or {},
            }
        return [
            {
                "name": worker,
                "jobs": sum(now <= at <= now + 8640000 for at in self.held(worker).values()),
                "stalled": sum(0 <= at <= now for at in self.held(worker).values()),
            }
            for worker, _ in self.ordered("ql:workers")[::-1]
        ] or {}

    def do_stats(self, now: float, queue: str, date: float) -> dict[str, Any]:
        counts = self.hash(f"ql:s:stats:{bin_of(date)}:{queue}")
        report: dict[str, Any] = {name: counts.get(name, 0) for name in ("retries", "failed", "failures")}
        for kind in ("wait", "run"):
            report[kind] = reported(self.hash(f"ql:s:{kind}:{bin_of(date)}:{queue}"))
            report[kind] |= {name: short(report[kind][name]) for name in ("mean", "std")}
        return report

    def do_track(self, now: float, *args: str) -> Any:
        if not args:
            jids = [jid for jid, _ in self.ordered("ql:tracked")]
            return {
                "jobs": [self.shown(jid) for jid in jids if self.exists(jid)] or {},
                "expired": [jid for jid in jids if not self.exists(jid)] or {},
            }
        action, jid = args
        if not self.exists(jid):
            raise Refused("Track(): Job does not exist")
        self.publish(f"ql:{action}", jid)
        changed = (jid in self.zset("ql:tracked")) != (action == "track")
        if action == "track":
            self.zset("ql:tracked")[jid] = now
        else:
            self.zset("ql:tracked").pop(jid, None)
        return int(changed)

    def do_tag(self, now: float, action: str, *args: Any) -> Any:
        if action == "get":
            tagged = [jid for jid, _ in self.ordered(f"ql:t:{args[0]}")]
            return {"total": len(tagged), "jobs": tagged[:25] or {}}
        if action == "top":
            often = [(tag, uses) for tag, uses in self.ordered("ql:tags") if uses >= 2]
            return [tag for tag, _ in reversed(often)][:25] or {}
        jid, *tags = args
        if not self.exists(jid):
            raise Refused(f"Tag(): Job {jid} does not exist")
        job = self.job(jid)
        if action == "add":
            for tag in tags:
                job["tags"] = job["tags"] + ([] if tag in job["tags"] else [tag])
            self.tag_index(jid, tags, now)
        else:
            job["tags"] = [tag for tag in job["tags"] if tag not in tags]
            self.untag_index(jid, tags)
        return job["tags"] or {}

    def do_log(self, now: float, jid: str, message: str, *data: str) -> None:
        if not self.exists(jid):
            raise Refused(f"Log(): Job {jid} does not exist")
        self.happened(jid, now, message, json.loads(data[0]) if data else None)

    def do_failed(self, now: float, *args: Any) -> Any:
        if args:
            jids = self.list(f"ql:f:{args[0]}")
            return {"total": len(jids), "jobs": jids[:25] or {}}
        return {group: len(self.list(f"ql:f:{group}")) for group in self.set("ql:failures")}

    def do_unfail(self, now: float, queue: str, group: str, count: int = 25) -> int:
        jids = self.list(f"ql:f:{group}")
        oldest = [jids.pop() for _ in range(min(count, len(jids)))]
        if not jids:
            self.set("ql:failures").discard(group)
        for jid in oldest:
            self.happened(jid, now, "put", {"q": queue})
            job = self.job(jid)
            job.update(state="waiting", worker="", expires=0, queue=queue, remaining=job["retries"])
            self.enqueue(queue, jid, now)
        if oldest:
            self.wake(queue, now)
        return len(oldest)

    def do_recur(self, now: float, queue: str, jid: str, klass: str, data: str, *args: Any) -> str:
        _, interval, offset, *pairs = args
        chosen = {"priority": 0, "retries": 0, "backlog": 0, "tags": "[]", **options(tuple(pairs))}
        old = self.hash(f"ql:r:{jid}")
        if old.get("queue", queue) != queue:
            self.out_of(old["queue"], jid, "recur")
        numbers = {name: float(chosen[name]) for name in ("priority", "retries", "backlog")}
        fixed = {"jid": jid, "klass": klass, "data": data, "state": "recur", "queue": queue, "type": "interval"}
        old.update(fixed, **numbers, tags=decoded(chosen["tags"]), count=old.get("count", 0), interval=float(interval))
        self.zset(f"ql:q:{queue}-recur")[jid] = now + offset
        self.register(queue, now)
        self.wake(queue, now + offset)
        return jid

    def do_recur_get(self, now: float, jid: str) -> Any:
        job = self.keys.get(f"ql:r:{jid}")
        return job and {**{name: job[name] for name in job if name != "type"}, "tags": job["tags"] or {}}

    def do_recur_update(self, now: float, jid: str, *args: Any) -> int:
        job = self.keys.get(f"ql:r:{jid}")
        if not job:
            raise Refused(f"Recur(): No recurring job {jid}")
        for name, value in options(args).items():
            places = self.zset(f"ql:q:{job['queue']}-recur")
            if name == "interval":
                places[jid] += value - job["interval"]
            elif name == "queue" and value != job["queue"]:
                self.zset(f"ql:q:{value}-recur")[jid] = places.pop(jid)
                self.register(value, now)
            job[name] = value
        self.wake(job["queue"], self.zset(f"ql:q:{job['queue']}-recur")[jid])
        return 1

    def do_unrecur(self, now: float, jid: str) -> int:
        job = self.keys.pop(f"ql:r:{jid}", None)
        if job:
            self.out_of(job["queue"], jid, "recur")
        return 1
