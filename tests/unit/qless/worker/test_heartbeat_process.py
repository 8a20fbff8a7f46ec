"""The process that sends heartbeats for a worker: when, for which jobs, and when no more."""

from __future__ import annotations

import time

from resty_django.qless.errors import LostLock
from resty_django.qless.worker.heartbeat import SLOT_BYTES, STUCK_SECONDS, SharedJobs, StandInHeartbeats


class Site:
    """A worker whose lease is 30 s, and what is sent for it."""

    def __init__(self, *jids: str) -> None:
        self.shared = SharedJobs(4)
        self.shared.record_check(1000.0, 30.0)
        for jid in jids:
            self.shared.add(jid)
        self.alive = True
        self.refused: set[str] = set()
        self.heartbeats = StandInHeartbeats("w", self.shared, lambda: self.alive, self._send)

    def _send(self, jid: str) -> None:
        if jid in self.refused:
            raise LostLock("it is another worker's")


def test_heartbeats_are_sent_only_while_the_worker_is_silent() -> None:
    site = Site("a", "b")
    assert site.heartbeats.check(1009.0) == []
    assert sorted(site.heartbeats.check(1010.0)) == ["a", "b"]
    assert site.heartbeats.check(1011.0) == []  # not before a third of the lease is over
    assert sorted(site.heartbeats.check(1020.5)) == ["a", "b"]
    site.shared.record_check(1021.0, 30.0)
    assert site.heartbeats.check(1030.0) == []


def test_a_job_that_has_ended_gets_none_and_one_refused_does_not_harm_others() -> None:
    site = Site("a", "b", "c")
    site.shared.remove("b")
    site.refused = {"a"}
    assert site.heartbeats.check(1015.0) == ["c"]


def test_none_is_sent_for_a_worker_that_is_dead_or_stopped_and_at_last_for_none_that_is_stuck() -> None:
    site = Site("a")
    site.alive = False
    assert site.heartbeats.check(1015.0) == []
    site.alive = True
    assert site.heartbeats.check(1016.0) == ["a"]
    assert site.heartbeats.check(1000.0 + STUCK_SECONDS - 1) == ["a"]
    assert site.heartbeats.check(1000.0 + STUCK_SECONDS + 31) == []


def test_shared_memory_reuses_its_slots_and_leaves_out_what_does_not_fit() -> None:
    shared = SharedJobs(3)
    for turn in range(50):
        for jid in ("é", f"jid-{turn}", "x" * SLOT_BYTES, "\udc80"):
            shared.add(jid)
        assert sorted(shared.jids()) == sorted(["é", f"jid-{turn}", "\udc80"])
        for jid in ("é", f"jid-{turn}", "x" * SLOT_BYTES, "\udc80", "unknown"):
            shared.remove(jid)
        assert shared.jids() == []
    for jid in ("a", "b", "c", "d", "a"):
        shared.add(jid)
    assert sorted(shared.jids()) == ["a", "b", "c"]


def test_a_worker_is_silent_only_with_jobs_or_without_any_sign_of_life() -> None:
    shared = SharedJobs(4)
    shared.record_check(1000.0, 30.0)
    shared.record_report(1000.0)
    assert not shared.is_silent(1011.0), "it has no jobs"
    shared.add("a")
    assert not shared.is_silent(1009.0)
    assert shared.is_silent(1010.0)
    shared.record_check(1010.0, 3600.0)
    assert not shared.is_silent(1021.0)
    assert shared.is_silent(1022.0), "neither the loop nor the reports run"
    shared.record_report(1015.0)
    assert not shared.is_silent(1026.0)


def test_the_next_worker_starts_without_the_jobs_of_the_last_one() -> None:
    shared = SharedJobs(4)
    shared.add("a")
    shared.record_check(0.0, 1.0)
    shared.clear()
    assert shared.jids() == []
    assert not shared.is_silent(time.monotonic())
