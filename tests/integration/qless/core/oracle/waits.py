"""How jobs come to wait and are handed out: put, pop, peek, dependencies, priorities."""

from __future__ import annotations

import math
from typing import Any

from .base import Base, decoded, options
from .rules import score
from .store import Refused


class Waits(Base):
    def do_put(
        self, now: float, worker: str, queue: str, jid: str, klass: str, data: str, delay: float, *args: Any
    ) -> str:
        chosen = options(args)
        job, old = self.job(jid), dict(self.job(jid))
        if old:
            self.untag_index(jid, old["tags"])
        priority = float(chosen.get("priority", old.get("priority", 0)))
        retries = float(chosen.get("retries", old.get("retries", 5)))
        tags = decoded(chosen["tags"]) if "tags" in chosen else old.get("tags", [])
        depends = decoded(chosen.get("depends"))
        for dependency in sorted(self.set(f"ql:j:{jid}-dependencies")) if depends else ():
            if dependency not in depends:
                self.unlink(jid, dependency)
        self.log("put", jid=jid, queue=queue)
        self.happened(jid, now, "put", {"q": queue})
        if old:
            self._leave(jid, old, worker, queue)
        self.tag_index(jid, tags, now)
        job.update(jid=jid, klass=klass, data=data, priority=priority, tags=tags, worker="", expires=0, queue=queue)
        job.update(retries=retries, remaining=retries, time=now, state="waiting")
        job.pop("scheduled", None)
        self.link(jid, depends)
        if self.set(f"ql:j:{jid}-dependencies"):
            job["state"] = "depends"
            self.zset(f"ql:q:{queue}-depends")[jid] = now
            if delay > 0:
                job["scheduled"] = now + delay
        elif delay > 0:
            job["state"] = "scheduled"
            self.zset(f"ql:q:{queue}-scheduled")[jid] = now + delay
            self.wake(queue, now + delay)
        else:
            self.enqueue(queue, jid, now)
            self.wake(queue, now)
        self.register(queue, now)
        self.tracked(jid, "put")
        return jid

    def _leave(self, jid: str, old: dict[str, Any], worker: str, queue: str) -> None:
        self.out_of(old["queue"], jid, "work", "locks", "depends", "scheduled")
        if old["worker"]:
            self.held(old["worker"]).pop(jid, None)
            if old["worker"] != worker:
                self.lock_lost(jid, old["worker"])
        if old["state"] == "complete":
            del self.zset("ql:completed")[jid]
        elif old["state"] == "failed":
            self.unsink(jid, queue)

    def do_requeue(self, now: float, worker: str, queue: str, jid: str, *args: Any) -> str:
        if not self.exists(jid):
            raise Refused(f"Requeue(): Job {jid} does not exist")
        return self.do_put(now, worker, queue, jid, *args)

    def bring_scheduled(self, queue: str, now: float, count: int | None = None) -> None:
        for jid, _ in self.due(f"ql:q:{queue}-scheduled", now, count):
            self.out_of(queue, jid, "scheduled")
            self.enqueue(queue, jid, now)
            self.job(jid)["state"] = "waiting"

    def bring_recurring(self, queue: str, now: float, count: int) -> None:
        spawned = 0
        for parent, due in self.due(f"ql:q:{queue}-recur", now, count):
            recurring = self.hash(f"ql:r:{parent}")
            interval, backlog = recurring["interval"], recurring["backlog"]
            if interval == math.floor(interval):
                due = math.floor(due)
            if backlog and (now - due) / interval > backlog:
                due += math.ceil((now - due) / interval - backlog) * interval
            while due <= now and spawned < count:
                recurring["count"] += 1
                while self.exists(f"{parent}-{recurring['count']}"):
                    recurring["count"] += 1
                jid = f"{parent}-{recurring['count']}"
                self.tag_index(jid, recurring["tags"], now)
                copied = {name: recurring[name] for name in ("klass", "data", "priority", "tags", "retries")}
                self.job(jid).update(copied, jid=jid, state="waiting", worker="", expires=0, queue=queue, time=due)
                self.job(jid).update(remaining=recurring["retries"], spawned_from_jid=parent)
                self.happened(jid, due, "put", {"q": queue})
                self.enqueue(queue, jid, due)
                due += interval
                self.zset(f"ql:q:{queue}-recur")[parent] = due
                spawned += 1

    def do_pop(self, now: float, queue: str, worker: str, count: int) -> Any:
        if queue in self.set("ql:paused_queues"):
            return {}
        expires = now + self.lease(queue)
        self.zset("ql:workers")[worker] = now
        locks = self.zset(f"ql:q:{queue}-locks")
        limit = self.option(f"{queue}-max-concurrency") or 0
        if limit > 0:
            count = min(count, max(0, int(limit) - sum(at >= now for at in locks.values())))
        if not count:
            return {}
        jids = [jid for jid in self._expired(queue, now, count) if self._taken(queue, jid, now)]
        free = count - len(jids)
        self.bring_recurring(queue, now, free)
        self.bring_scheduled(queue, now, free)
        jids += [jid for jid, _ in self.ordered(f"ql:q:{queue}-work")[::-1][:free]]
        for jid in jids:
            job = self.job(jid)
            self.happened(jid, now, "popped", {"worker": worker})
            self.measure("wait", queue, now, job["time"])
            job.update(time=now, worker=worker, expires=expires, state="running")
            self.held(worker)[jid] = locks[jid] = expires
            self.keys[f"ql:q:{queue}-locks"] = locks
            self.out_of(queue, jid, "work")
            self.tracked(jid, "popped")
        return [self.shown(jid) for jid in jids] or {}

    def _expired(self, queue: str, now: float, count: int) -> list[str]:
        return [jid for jid, at in self.ordered(f"ql:q:{queue}-locks") if at <= now][:count]

    def _taken(self, queue: str, jid: str, now: float) -> bool:
        """Whether a job whose lock has expired goes to the one who asks."""
        job, grace = self.job(jid), self.option("grace-period")
        holder, first = job["worker"], job.get("grace") != 1
        self.held(holder).pop(jid, None)
        if first or grace <= 0:
            self.tracked(jid, "stalled")
            self.happened(jid, now, "timed-out")
            job["grace"] = 1
            self.lock_lost(jid, holder)
            self.zset(f"ql:q:{queue}-locks")[jid] = now + grace
            self.count(queue, now, "retries")
            if grace > 0:
                return False
        del job["grace"]
        job["remaining"] -= 1
        if job["remaining"] >= 0:
            return True
        self.out_of(queue, jid)
        failure = self.exhausted(queue, f"failed-retries-{queue}", now)
        self.sink(jid, queue, now, failure)
        self.tracked(jid, "failed")
        self.log("failed", jid=jid, worker=holder, group=failure["group"], message=failure["message"])
        return False

    def do_peek(self, now: float, queue: str, count: int) -> Any:
        jids = self._expired(queue, now, count)
        self.bring_recurring(queue, now, count - len(jids))
        self.bring_scheduled(queue, now, count - len(jids))
        jids += [jid for jid, _ in self.ordered(f"ql:q:{queue}-work")[::-1][: count - len(jids)]]
        return [self.shown(jid) for jid in jids] or {}

    def do_priority(self, now: float, jid: str, priority: float) -> int:
        if not self.exists(jid):
            raise Refused(f"Priority(): Job {jid} does not exist")
        job = self.job(jid)
        work = self.zset(f"ql:q:{job['queue']}-work")
        if jid in work:
            work[jid] = score(priority, 0)
        job["priority"] = float(priority)
        return int(priority)

    def do_depends(self, now: float, jid: str, action: str, *others: str) -> int:
        state = self.job(jid).get("state", "false")
        if state != "depends":
            raise Refused(f"Depends(): Job {jid} not in the depends state: {state}")
        if action == "on":
            self.link(jid, list(others))
            return 1
        for dependency in list(self.set(f"ql:j:{jid}-dependencies")) if others == ("all",) else others:
            self.unlink(jid, dependency)
        if not self.set(f"ql:j:{jid}-dependencies"):
            queue = self.job(jid)["queue"]
            self.out_of(queue, jid, "depends")
            self.enqueue(queue, jid, now)
            self.job(jid)["state"] = "waiting"
            self.wake(queue, now)
        return 1
