"""Lengths of leases."""

from __future__ import annotations

from resty_django.qless.worker.in_flight import Leases


def test_lengths_of_leases_come_from_the_configuration() -> None:
    leases = Leases(("a", "b"))
    assert leases.lengths["a"] == 60.0
    assert leases.length_requests() == [
        ("config.get", "heartbeat"),
        ("config.get", "a-heartbeat"),
        ("config.get", "b-heartbeat"),
    ]
    leases.apply_lengths([30, None, b"5.5"], 0.0)
    assert (leases.lengths["a"], leases.lengths["b"]) == (30.0, 5.5)
    leases.apply_lengths([b"nonsense", b"-1", ValueError()], 0.0)
    assert (leases.lengths["a"], leases.lengths["b"]) == (60.0, 60.0)
