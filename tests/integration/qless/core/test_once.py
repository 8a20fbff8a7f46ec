"""The command `once`: commands of the outbox are carried out once, in their order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.qless.conftest import Core, CoreError

pytestmark = [pytest.mark.redis, pytest.mark.contract]

DAY = 86_400


def once(core: Core, number: int, *command: Any, key: str = "row", seconds: float = DAY) -> Any:
    return core("once", key, number, seconds, *command)


def put(jid: str, *options: Any, queue: str = "q") -> tuple[Any, ...]:
    return ("put", "client", queue, jid, "Klass", "{}", 0, *options)


def test_a_second_time_changes_nothing(core: Core) -> None:
    assert once(core, 1, *put("j")) == "j"
    assert once(core, 1, *put("j", queue="other")) is None
    assert core.get()["queue"] == "q"
    assert core.client.get("ql:once:row") == b"1"
    assert DAY - 60 < core.client.ttl("ql:once:row") <= DAY


def test_a_second_time_keeps_the_marker_for_longer(core: Core) -> None:
    once(core, 1, *put("j"), seconds=100)
    assert once(core, 1, *put("j")) is None
    assert core.client.ttl("ql:once:row") > 100


def test_a_command_that_fails_in_the_middle_leaves_no_marker(core: Core) -> None:
    core.client.set("ql:q:q-work", "written by another program")
    with pytest.raises(CoreError):
        once(core, 1, *put("j"))
    core.client.delete("ql:q:q-work")
    assert once(core, 1, *put("j")) == "j"
    assert core.popped() == ["j"]


@pytest.mark.parametrize("state", ["running", "complete", "failed", "canceled"])
def test_a_job_that_has_moved_on_stays_as_it_is(core: Core, state: str) -> None:
    once(core, 1, *put("j"))
    core.pop()
    if state == "complete":
        core.complete()
    elif state == "failed":
        core("fail", "j", "w", "group", "message")
    elif state == "canceled":
        core("cancel", "j")
    before = core.get()
    assert once(core, 1, *put("j")) is None
    assert core.get() == before
    assert before is None or before["state"] == state


def test_a_unique_job_is_put_once_by_each_row(core: Core) -> None:
    assert once(core, 1, *put("j", "unique", "pending")) == "j"
    core.pop()
    core.complete()
    assert once(core, 1, *put("j", "unique", "pending")) is None
    assert core.get()["state"] == "complete"
    assert once(core, 1, *put("j", "unique", "pending"), key="another") == "j"
    assert core.get()["state"] == "waiting"


def test_commands_of_a_row_keep_their_order(core: Core) -> None:
    with pytest.raises(CoreError, match=r"Once\(\): command 2 of row follows 0"):
        once(core, 2, *put("second"))
    assert core.get("second") is None
    for number, jid in enumerate(("first", "second", "third"), 1):
        assert once(core, number, *put(jid)) == jid
    assert [once(core, number, *put("j")) for number in (1, 2, 3)] == [None, None, None]


def test_a_refused_command_leaves_no_marker_and_stops_the_row(core: Core) -> None:
    with pytest.raises(CoreError, match="not a number"):
        once(core, 1, "put", "client", "q", "j", "Klass", "{}", "soon")
    assert core.client.exists("ql:once:row") == 0
    with pytest.raises(CoreError, match="follows 0"):
        once(core, 2, *put("second"))


def test_a_group_is_opened_and_closed_once(core: Core) -> None:
    commands = (("group.open", "g", "name"), put("j", "outcome", '{"group":"g"}'), ("group.close", "g"))
    assert [once(core, number, *command) for number, command in enumerate(commands, 1)] == ["g", "j", "running"]
    core.pop()
    core.complete()
    core("cancel", "j")
    assert [once(core, number, *command) for number, command in enumerate(commands, 1)] == [None, None, None]
    assert core.json("group.get", "g")["state"] == "complete"


def test_a_discarded_row_is_canceled_and_never_carried_out(core: Core) -> None:
    once(core, 1, *put("first"))
    assert once(core, 0, "cancel", "first", "second") == ["first", "second"]
    assert core.get("first") is None
    assert once(core, 2, *put("second")) is None
    assert once(core, 1, *put("first")) is None
    assert core.get("first") is core.get("second") is None


def test_a_cancel_that_fails_in_the_middle_leaves_no_marker(core: Core) -> None:
    once(core, 1, *put("first"))
    core.pop()
    core.client.set("ql:w:w:jobs", "written by another program")
    with pytest.raises(CoreError):
        once(core, 0, "cancel", "first", "second")
    assert core.client.get("ql:once:row") == b"1"


def test_a_discarded_row_whose_job_others_need_stays(core: Core) -> None:
    once(core, 1, *put("first"))
    core.put("needs", depends=["first"])
    with pytest.raises(CoreError, match="is a dependency of needs"):
        once(core, 0, "cancel", "first")
    assert core.client.get("ql:once:row") == b"1"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("row",),
        ("row", 1),
        ("row", 1, DAY),
        ("row", "one", DAY, *put("j")),
        ("row", 1, "a day", *put("j")),
        ("row", 1, DAY, "pop", "q", "w", 1),
        ("row", 1, DAY, "cancel", "j"),
        ("row", 0, DAY, *put("j")),
        ("row", 1, DAY, "once", "row", 1, DAY, *put("j")),
        ("row", 1, DAY, "put group.open"),
    ],
)
def test_wrong_arguments_are_refused(core: Core, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(CoreError, match=r"Once\(\): needs a key, a number, seconds, and one of its commands"):
        core("once", *arguments)
    assert core.client.keys("ql:*") == []


def test_a_full_server_writes_neither_job_nor_marker(core: Core) -> None:
    used = int(core.client.info("memory")["used_memory"])
    core.client.config_set("maxmemory", max(1, used // 2))
    try:
        with pytest.raises(CoreError, match="maxmemory"):
            once(core, 1, *put("j"))
    finally:
        core.client.config_set("maxmemory", 0)
    assert core.client.keys("ql:*") == []
    assert once(core, 1, *put("j")) == "j"
