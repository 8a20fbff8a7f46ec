"""How a stage of a job ends: complete, fail, retry, heartbeat, timeout, cancel, expire."""

from __future__ import annotations

import math
from typing import Any

from .base import Base, decoded, options
from .store import Refused


class Ends(Base):
    def do_complete(self, now: float, jid: str, worker: str, queue: str, data: str, *args: Any) -> str:
        chosen = options(args)
        job = self.running("Complete", jid, worker)
        if job["queue"] != queue:
            raise Refused(f"Complete(): Job {jid} running in another queue: {job['queue']}")
        self.happened(jid, now, "done")
        self.out_of(queue, jid)
        self.measure("run", queue, now, job["time"])
        self.held(worker).pop(jid, None)
        self.tracked(jid, "completed")
        job.update(data=data, worker="", failure={}, expires=0, remaining=job["retries"], time=now)
        if "next" in chosen:
            return self._advance(now, jid, queue, chosen)
        self.log("completed", jid=jid, queue=queue)
        job.update(state="complete", queue="")
        self.zset("ql:completed")[jid] = now
        self._expire(now)
        self._release(now, jid)
        return "complete"

    def do_complete_many(self, now: float, worker: str, queue: str, *entries: str) -> list[str]:
        jids = entries[::4]
        replies = [""] * len(jids)

        def is_late(number: int) -> bool:
            jid = jids[number]
            return bool(self.zset("ql:tracked") or self.set(f"ql:j:{jid}-dependents") or jid in jids[:number])

        for number in sorted(range(len(jids)), key=is_late):
            try:
                replies[number] = self.do_complete(now, jids[number], worker, queue, entries[4 * number + 1])
            except Refused as error:
                replies[number] = str(error)
        return replies

    def _advance(self, now: float, jid: str, queue: str, chosen: dict[str, Any]) -> str:
        job, target, delay = self.job(jid), chosen["next"], chosen.get("delay", 0)
        depends = decoded(chosen.get("depends"))
        self.log("advanced", jid=jid, queue=queue, to=target)
        self.happened(jid, now, "put", {"q": target})
        self.register(target, now)
        job.update(state="waiting", queue=target)
        if delay > 0 and not depends:
            self.zset(f"ql:q:{target}-scheduled")[jid] = now + delay
            self.wake(target, now + delay)
            return "scheduled"
        self.link(jid, depends)
        if depends and self.set(f"ql:j:{jid}-dependencies"):
            job["state"] = "depends"
            self.zset(f"ql:q:{target}-depends")[jid] = now
            if delay > 0:
                job["scheduled"] = now + delay
            return "depends"
        self.enqueue(target, jid, now)
        self.wake(target, now)
        return "waiting"

    def _expire(self, now: float) -> None:
        old = [jid for jid, _ in self.due("ql:completed", now - self.option("jobs-history"))]
        remaining = [jid for jid, _ in self.ordered("ql:completed") if jid not in old]
        for jid in old + remaining[: max(0, len(remaining) - int(self.option("jobs-history-count")))]:
            self._delete_complete(jid)

    def _delete_complete(self, jid: str) -> None:
        self.untag_index(jid, self.job(jid)["tags"])
        for key in (f"ql:j:{jid}", f"ql:j:{jid}-history", f"ql:j:{jid}-dependencies"):
            self.keys.pop(key, None)
        del self.zset("ql:completed")[jid]

    def _release(self, now: float, jid: str) -> None:
        for dependent in self.keys.pop(f"ql:j:{jid}-dependents", ()):
            waiting = self.set(f"ql:j:{dependent}-dependencies")
            waiting.discard(jid)
            if waiting:
                continue
            job = self.job(dependent)
            self.out_of(job["queue"], dependent, "depends")
            due = job.pop("scheduled", None)
            if due is None:
                self.enqueue(job["queue"], dependent, now)
                job["state"] = "waiting"
            else:
                self.zset(f"ql:q:{job['queue']}-scheduled")[dependent] = due
                job["state"] = "scheduled"
            self.wake(job["queue"], now if due is None else due)

    def do_fail(self, now: float, jid: str, worker: str, group: str, message: str, *data: str) -> str:
        job = self.running("Fail", jid, worker)
        self.log("failed", jid=jid, worker=worker, group=group, message=message)
        self.tracked(jid, "failed")
        self.held(worker).pop(jid, None)
        self.out_of(job["queue"], jid)
        if data:
            job["data"] = data[0]
        failure = {"group": group, "message": message, "when": math.floor(now), "worker": worker}
        self.sink(jid, job["queue"], now, failure, worker=worker)
        return jid

    def do_retry(self, now: float, jid: str, queue: str, worker: str, delay: float = 0, *why: str) -> int:
        job = self.running("Retry", jid, worker)
        job["remaining"] -= 1
        job.pop("grace", None)
        self.out_of(job["queue"], jid, "locks")
        self.held(worker).pop(jid, None)
        failure = None
        if len(why) == 2:
            failure = {"group": why[0], "message": why[1], "when": math.floor(now), "worker": worker}
        if job["remaining"] < 0:
            group = why[0] if why else f"failed-retries-{queue}"
            self.sink(jid, queue, now, failure or self.exhausted(job["queue"], group, now))
            self.tracked(jid, "failed")
        else:
            if delay > 0:
                self.zset(f"ql:q:{queue}-scheduled")[jid] = now + delay
            else:
                self.enqueue(queue, jid, now)
            job["state"] = "scheduled" if delay > 0 else "waiting"
            if queue != job["queue"]:
                job["queue"] = queue
                self.register(queue, now)
            if failure:
                job["failure"] = failure
            self.wake(queue, now + max(delay, 0))
        return int(job["remaining"])

    def do_heartbeat(self, now: float, jid: str, worker: str, *data: str) -> int:
        job = self.running("Heartbeat", jid, worker)
        expires = now + self.lease(job["queue"])
        job.update(expires=expires, **({"data": data[0]} if data else {}))
        self.held(worker)[jid] = self.zset(f"ql:q:{job['queue']}-locks")[jid] = expires
        self.zset("ql:workers")[worker] = now
        return int(expires)

    def do_timeout(self, now: float, *jids: str) -> None:
        for jid in jids:
            if not self.exists(jid):
                raise Refused(f"Timeout(): Job {jid} does not exist")
            job = self.job(jid)
            if job["state"] != "running":
                raise Refused(f"Timeout(): Job {jid} not running")
            self.happened(jid, now, "timed-out")
            self.out_of(job["queue"], jid, "locks")
            self.zset(f"ql:q:{job['queue']}-work")[jid] = math.inf
            job.update(state="stalled", expires=0)
            self.lock_lost(jid, job["worker"])
            self.wake(job["queue"], now)

    def do_cancel(self, now: float, *jids: str) -> list[str]:
        for jid in jids:
            for dependent in self.set(f"ql:j:{jid}-dependents"):
                if dependent not in jids:
                    raise Refused(f"Cancel(): {jid} is a dependency of {dependent} but is not mentioned to be canceled")
        for jid in jids:
            if self.exists(jid) and self.job(jid)["state"] != "complete":
                self._cancel(jid)
        return list(jids)

    def do_oldest(self, now: float, state: str, group: str, skip: int, count: int) -> list[str]:
        if state == "complete":
            jobs = [(jid, self._last_queue(jid), f"{at:.17g}") for jid, at in self.ordered("ql:completed")]
        else:
            failed = [(jid, self.job(jid)) for jid in reversed(self.list(f"ql:f:{group}"))]
            jobs = [(jid, job["queue"], f"{job['failure']['when']:.17g}") for jid, job in failed]
        return [value for job in jobs[skip : skip + count] for value in job]

    def _last_queue(self, jid: str) -> str:
        puts = [entry[2] for entry in self.list(f"ql:j:{jid}-history") if entry[1] == "put"]
        return str(puts[-1]["q"]) if puts else ""

    def do_expire(self, now: float, state: str, *jobs: str) -> int:
        deleted = 0
        for jid, at in reversed([*zip(jobs[::2], map(float, jobs[1::2]), strict=True)]):
            job = self.job(jid)
            if job.get("state") != state:
                continue
            if state == "complete" and self.zset("ql:completed").get(jid) == at:
                self._delete_complete(jid)
                deleted += 1
            elif state == "failed" and job["failure"]["when"] == at and not self.set(f"ql:j:{jid}-dependents"):
                self._cancel(jid, also_old=False)  # statistics that are gone stay gone
                deleted += 1
        return deleted

    def _cancel(self, jid: str, *, also_old: bool = True) -> None:
        job = self.job(jid)
        worker, queue = job["worker"], job["queue"]
        self.log("canceled", jid=jid, worker=worker, queue=queue)
        if worker:
            self.tell(worker, "canceled", jid=jid, worker=worker, queue=queue)
            self.held(worker).pop(jid, None)
        self.out_of(queue, jid, "work", "locks", "scheduled", "depends")
        for dependency in self.keys.pop(f"ql:j:{jid}-dependencies", ()):
            self.set(f"ql:j:{dependency}-dependents").discard(jid)
        if job["state"] == "failed":
            self.unsink(jid, queue, also_old=also_old)
        self.untag_index(jid, job["tags"])
        self.tracked(jid, "canceled")
        self.keys.pop(f"ql:j:{jid}", None)
        self.keys.pop(f"ql:j:{jid}-history", None)
