"""How the core is called: arguments, errors, types of replies, what the text may not do."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from resty_django.qless.core import SCRIPT_FILES, source
from tests.integration.qless.conftest import Core, CoreError

pytestmark = [pytest.mark.redis, pytest.mark.contract]

COMMANDS = set(re.findall(r"command == '([\w.]+)'", source()))

ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "put": ("Put", {"worker": "w", "queue": "q", "jid": "x", "klass": "K", "data": "{}", "delay": 0}),
    "pop": ("Pop", {"queue": "q", "worker": "w", "count": 1}),
    "peek": ("Peek", {"queue": "q", "count": 1}),
    "complete": ("Complete", {"jid": "j", "worker": "w", "queue": "q", "data": "{}"}),
    "fail": ("Fail", {"jid": "j", "worker": "w", "group": "g", "message": "m"}),
    "retry": ("Retry", {"jid": "j", "queue": "q", "worker": "w"}),
    "heartbeat": ("Heartbeat", {"jid": "j", "worker": "w"}),
    "timeout": ("Timeout", {"jid": "j"}),
    "progress": ("Progress", {"jid": "j", "worker": "w", "share": 1}),
    "cancel": ("Cancel", {"jid": "j"}),
    "expire": ("Expire", {"state": "failed"}),
    "oldest": ("Oldest", {"state": "failed", "group": "g"}),
    "priority": ("Priority", {"jid": "j", "priority": 1}),
    "depends": ("Depends", {"jid": "j", "command": "on"}),
    "log": ("Log", {"jid": "j", "message": "m"}),
    "get": ("Get", {"jid": "j"}),
    "jobs": ("Jobs", {"type": "running", "queue": "q"}),
    "result": ("Result", {"jid": "j"}),
    "unfail": ("Unfail", {"queue": "q", "group": "g"}),
    "pace": ("Pace", {"group": "g", "rate": 1}),
    "length": ("Length", {"queue": "q"}),
    "pause": ("Pause", {"queue": "q"}),
    "unpause": ("Unpause", {"queue": "q"}),
    "queue.forget": ("Queue.Forget", {"queue": "q"}),
    "due": ("Due", {"queue": "q"}),
    "latency": ("Latency", {"queue": "q"}),
    "stats": ("Stats", {"queue": "q", "date": 0}),
    "failures.latest": ("Failures.Latest", {"count": 1, "group": "g"}),
    "failures.between": ("Failures.Between", {"start": 0, "end": 1, "group": "g"}),
    "figures": ("Figures", {"unit": "m", "n": 0}),
    "worker.deregister": ("Worker.Deregister", {"worker": "w"}),
    "worker.report": ("Worker.Report", {"worker": "w", "report": "{}"}),
    "worker.request": ("Worker.Request", {"worker": "w", "action": "quiet"}),
    "worker.stacks": ("Worker.Stacks", {"worker": "w"}),
    "config.set": ("Config.Set", {"option": "o", "value": "v"}),
    "config.unset": ("Config.Unset", {"option": "o"}),
    "recur": (
        "Recur",
        {
            **{"queue": "q", "jid": "r", "klass": "K", "data": "{}"},
            **{"schedule": "interval", "interval": 1, "offset": 0},
        },
    ),
    "recur.get": ("RecurringJob Get", {"jid": "r"}),
    "recur.update": ("Recur", {"jid": "r"}),
    "recur.tag": ("Tag", {"jid": "r"}),
    "recur.untag": ("Untag", {"jid": "r"}),
    "unrecur": ("Unrecur", {"jid": "r"}),
    "index.put": ("Index.Put", {"jid": "j"}),
    "index.count": ("Index.Count", {"patterns": "[]"}),
    "index.find": ("Index.Find", {"terms": "[]"}),
}
NUMBERS = [
    ("Put", "delay", ["put", "w", "q", "x", "K", "{}", "?"]),
    ("Put", "priority", ["put", "w", "q", "x", "K", "{}", 0, "priority", "?"]),
    ("Put", "retries", ["put", "w", "q", "x", "K", "{}", 0, "retries", "?"]),
    ("Put", "priority", ["put.many", "w", "q", "x", "K", "{}", 0, '{"priority":"?"}']),
    ("Put", "delay", ["put.many", "w", "q", "x", "K", "{}", "?", ""]),
    ("Pop", "count", ["pop", "q", "w", "?"]),
    ("Peek", "count", ["peek", "q", "?"]),
    ("Figures", "n", ["figures", "m", "?"]),
    ("Figures", "count", ["figures", "m", 1, "", "", "?"]),
    ("Complete", "delay", ["complete", "j", "w", "q", "{}", "next", "p", "delay", "?"]),
    ("Retry", "delay", ["retry", "j", "q", "w", "?"]),
    ("Priority", "priority", ["priority", "j", "?"]),
    ("Progress", "share", ["progress", "j", "w", "?"]),
    ("Unfail", "count", ["unfail", "q", "g", "?"]),
    ("Pace", "rate", ["pace", "g", "?"]),
    ("Failed", "start", ["failed", "g", "?"]),
    ("Failures.Latest", "count", ["failures.latest", "?", "g"]),
    ("Failures.Between", "start", ["failures.between", "?", 1, "g"]),
    ("Failures.Between", "end", ["failures.between", 0, "?", "g"]),
    ("Failed", "limit", ["failed", "g", 0, "?"]),
    ("Jobs", "offset", ["jobs", "complete", "?"]),
    ("Jobs", "count", ["jobs", "running", "q", 0, "?"]),
    ("Stats", "date", ["stats", "q", "?"]),
    ("Tag", "offset", ["tag", "top", "?"]),
    ("Tag", "count", ["tag", "get", "x", 0, "?"]),
    ("Worker.Request", "slots", ["worker.request", "w", "scale", "?"]),
    ("Search", "count", ["search", "count", "?"]),
    ("Search", "scan", ["search", "scan", "?"]),
    ("Index.Take", "count", ["index.take", "?"]),
    ("Index.Find", "count", ["index.find", "[]", "count", "?"]),
    ("Index.Find", "scan", ["index.find", "[]", "scan", "?"]),
    ("Recur", "interval", ["recur", "q", "r", "K", "{}", "interval", "?", 0]),
    ("Recur", "offset", ["recur", "q", "r", "K", "{}", "interval", 1, "?"]),
    ("Recur", "backlog", ["recur", "q", "r", "K", "{}", "interval", 1, 0, "backlog", "?"]),
    ("Recur", "priority", ["recur", "q", "r", "K", "{}", "interval", 1, 0, "priority", "?"]),
    ("Recur", "retries", ["recur", "q", "r", "K", "{}", "interval", 1, 0, "retries", "?"]),
]
JSON = [
    ("Put", "data", ["put", "w", "q", "x", "K", "{?", 0]),
    ("Put", "data", ["put", "w", "q", "x", "K", "false", 0]),
    ("Put", "tags", ["put", "w", "q", "x", "K", "{}", 0, "tags", "{?"]),
    ("Put", "depends", ["put", "w", "q", "x", "K", "{}", 0, "depends", "{?"]),
    ("Put", "data", ["put.many", "w", "q", "x", "K", "{?", 0, ""]),
    ("Put", "options", ["put.many", "w", "q", "x", "K", "{}", 0, "{?"]),
    ("Complete", "data", ["complete", "j", "w", "q", "{?"]),
    ("Complete", "depends", ["complete", "j", "w", "q", "{}", "next", "p", "depends", "{?"]),
    ("Complete", "result", ["complete", "j", "w", "q", "{}", "result", "{?"]),
    ("Fail", "data", ["fail", "j", "w", "g", "m", "{?"]),
    ("Heartbeat", "data", ["heartbeat", "j", "w", "{?"]),
    ("Log", "data", ["log", "j", "m", "{?"]),
    ("Recur", "data", ["recur", "q", "r", "K", "{?", "interval", 1, 0]),
    ("Recur", "tags", ["recur", "q", "r", "K", "{}", "interval", 1, 0, "tags", "{?"]),
    ("Index.Put", "terms", ["index.put", "j", "2", "{?"]),
    ("Index.Count", "patterns", ["index.count", "{?"]),
    ("Index.Find", "terms", ["index.find", "{?"]),
]


@pytest.fixture
def running(core: Core) -> Core:
    """A job `j` that worker `w` has of queue `q`."""
    core.put()
    core.pop()
    return core


def refused(core: Core, *arguments: Any) -> str:
    """The error, which leaves everything as it was."""
    before = everything(core)
    with pytest.raises(CoreError) as caught:
        core(*arguments)
    assert everything(core) == before
    return str(caught.value)


def everything(core: Core) -> dict[bytes, bytes | None]:
    return {key: core.client.dump(key) for key in core.client.keys("*")}


def test_missing_arguments_are_named(running: Core) -> None:
    for command, (title, args) in ARGUMENTS.items():
        for number, name in enumerate(args):
            assert refused(running, command, *list(args.values())[:number]) == f'{title}(): Arg "{name}" missing'


def test_errors_name_an_argument_that_is_not_a_number(running: Core) -> None:
    for title, name, call in NUMBERS:
        for bad in ("one", "nan", "inf", ""):
            arguments = [word.replace("?", bad) if isinstance(word, str) else word for word in call]
            assert refused(running, *arguments) == f'{title}(): Arg "{name}" not a number: {bad}'


def test_errors_name_an_argument_that_is_not_json(running: Core) -> None:
    for title, name, arguments in JSON:
        bad = next(word for word in arguments if word in ("{?", "false"))
        assert refused(running, *arguments) == f'{title}(): Arg "{name}" not JSON: {bad}'


@pytest.mark.parametrize("bad", ['{"a":1}', '"a"', "1", "null", "[[]]", "[null]"])
def test_lists_are_lists_of_texts(core: Core, bad: str) -> None:
    for name in ("tags", "depends"):
        with pytest.raises(CoreError, match=f'Arg "{name}" not a JSON list of texts'):
            core("put", "w", "q", "x", "K", "{}", 0, name, bad)


def test_options_come_in_pairs(core: Core) -> None:
    core.put()
    for command in ("put", "requeue"):
        message = refused(core, command, "w", "q", "j", "K", "{}", 0, "priority", 1, "tags")
        assert message == "Odd number of additional args: priority 1 tags"
    message = refused(core, "recur", "q", "r", "K", "{}", "interval", 1, 0, "priority")
    assert message == "Odd number of additional args: priority"
    assert "five arguments" in refused(core, "put.many", "w", "q", "x", "K", "{}", 0)
    assert "four arguments" in refused(core, "complete.many", "w", "q", "j", "{}", "")
    assert "but there are 404" in refused(core, "complete.many", "w", "q", *["j", "{}", "", ""] * 101)


def test_unknown_options_are_ignored(core: Core) -> None:
    core("put", "w", "q", "j", "K", "{}", 0, "colour", "red")
    core("recur", "q", "r", "K", "{}", "interval", 1, 10, "colour", "red")
    core.pop()
    assert core.complete(colour="red") == "complete"


def test_a_call_is_a_command_and_a_time(core: Core, valkey: Redis) -> None:
    def error(*arguments: Any, keys: int = 0) -> str:
        with pytest.raises(ResponseError, match=r"user_script:\d+: ") as caught:
            valkey.evalsha(core.sha, keys, *arguments)
        return str(caught.value)

    assert "Must provide a command" in error()
    for arguments in (["nope"], ["nope", 1], ["put pop", 1], ["", 1], [" ", 1], ["%a+", "x"]):
        assert f"Unknown command {arguments[0]}" in error(*arguments)
    for arguments in (["put"], ["queues", "soon"], ["queues", "nan"], ["queues", "inf"]):
        assert 'Arg "now" missing or not a number' in error(*arguments)
    assert "No Keys should be provided" in error("foo", "queues", 1, keys=1)
    assert "No Keys should be provided" in error("ql:", "queues", 1, keys=1)


def test_every_command_is_known_by_name_before_its_time_is_looked_at(core: Core, valkey: Redis) -> None:
    assert len(COMMANDS) == 74
    for command in COMMANDS:
        with pytest.raises(ResponseError, match='Arg "now" missing'):
            valkey.evalsha(core.sha, 0, command)


def test_errors_of_ending_a_job_name_command_job_and_state(core: Core) -> None:
    ends = {
        "Complete": ["complete", "j", "w", "q", "{}"],
        "Fail": ["fail", "j", "w", "g", "m"],
        "Retry": ["retry", "j", "q", "w"],
        "Heartbeat": ["heartbeat", "j", "w"],
        "Progress": ["progress", "j", "w", 1],
    }
    state = {
        **dict.fromkeys(("Complete", "Retry"), "is not currently running"),
        **dict.fromkeys(("Fail", "Heartbeat", "Progress"), "not currently running"),
    }
    holder = {
        "Complete": "has been handed out to another worker",
        "Fail": "running with another worker",
        "Retry": "has been given to another worker",
        "Heartbeat": "given out to another worker",
        "Progress": "given out to another worker",
    }
    for title, arguments in ends.items():
        assert refused(core, *arguments) == f"{title}(): Job j does not exist"
    core.put()
    for title, arguments in ends.items():
        assert refused(core, *arguments) == f"{title}(): Job j {state[title]}: waiting"
    core.pop("other")
    for title, arguments in ends.items():
        assert refused(core, *arguments) == f"{title}(): Job j {holder[title]}: other"
    message = refused(core, "complete", "j", "other", "elsewhere", "{}")
    assert message == "Complete(): Job j running in another queue: q"
    for name, value in (("delay", 1), ("depends", '["x"]')):
        message = refused(core, "complete", "j", "other", "q", "{}", name, value)
        assert message == f'Complete(): "{name}" cannot be used without a "next".'
    assert core.complete(worker="other", delay=0, depends="[]") == "complete"


def test_errors_of_all_other_commands_name_the_command(core: Core) -> None:
    assert refused(core, "requeue", "w", "q", "j", "K", "{}", 0) == "Requeue(): Job j does not exist"
    assert refused(core, "timeout", "j") == "Timeout(): Job j does not exist"
    assert refused(core, "depends", "j", "on", "x") == "Depends(): Job j not in the depends state: false"
    assert refused(core, "depends", "j", "maybe", "x") == 'Depends(): Argument "command" must be "on" or "off"'
    assert refused(core, "priority", "j", 1) == "Priority(): Job j does not exist"
    assert refused(core, "log", "j", "m") == "Log(): Job j does not exist"
    assert refused(core, "track", "track", "j") == "Track(): Job does not exist"
    assert refused(core, "track", "untrack", "j") == "Track(): Job does not exist"
    assert refused(core, "track", "Follow", "j") == 'Track(): Unknown action "Follow"'
    assert refused(core, "track", "track") == 'Track(): Arg "jid" missing'
    assert refused(core, "tag", "add", "j", "x") == "Tag(): Job j does not exist"
    assert refused(core, "tag", "remove", "j", "x") == "Tag(): Job j does not exist"
    assert refused(core, "tag", "add") == 'Tag(): Arg "jid" missing'
    assert refused(core, "tag", "get") == 'Tag(): Arg "tag" missing'
    for arguments in ([], ["all"]):
        assert refused(core, "tag", *arguments).startswith("Tag(): First argument must be ")
    assert refused(core, "jobs", "lost", "q") == 'Jobs(): Unknown type "lost"'
    assert refused(core, "recur.update", "r", "priority", 1) == "Recur(): No recurring job r"
    assert refused(core, "recur.tag", "r", "x") == "Tag(): Job r does not exist"
    assert refused(core, "recur.untag", "r", "x") == "Untag(): Job r does not exist"
    core("recur", "q", "r", "K", "{}", "interval", 60, 0)
    assert refused(core, "recur.update", "r", "colour", 1) == 'Recur(): Unrecognized option "colour"'
    assert refused(core, "recur.update", "r", "priority", 1, "klass") == "No value provided for klass"
    assert refused(core, "recur.update", "r", "klass", "L", "data", "{?") == 'Recur(): Arg "data" not JSON: {?'
    for arguments in (["interval", 0], ["interval", -1]):
        assert refused(core, "recur.update", "r", *arguments) == 'Recur(): Arg "interval" must be greater than 0'
        assert refused(core, "recur", "q", "s", "K", "{}", *arguments, 0) == (
            'Recur(): Arg "interval" must be greater than 0'
        )
    assert refused(core, "recur", "q", "s", "K", "{}", "cron", 1, 0) == 'Recur(): schedule type "cron" unknown'
    core.put()
    assert refused(core, "timeout", "j") == "Timeout(): Job j not running"
    assert refused(core, "depends", "j", "off", "all") == "Depends(): Job j not in the depends state: waiting"
    core.put("k", depends=["j"])
    message = refused(core, "cancel", "j")
    assert message == "Cancel(): j is a dependency of k but is not mentioned to be canceled"
    assert refused(core, "log", "j", "m", "1") == 'Log(): Arg "data" not a JSON object: 1'
    assert refused(core, "search", "state", "lost") == 'Search(): Unknown state "lost"'
    assert "cursor" in refused(core, "search", "cursor", "x")
    assert "1 or more" in refused(core, "search", "count", 0)
    assert refused(core, "search", "klass") == 'Search(): Arg "klass" missing'


def test_put_many_writes_nothing_if_one_job_is_wrong(core: Core) -> None:
    good = ["a", "K", "{}", 0, ""]
    for bad in (["b", "K", "{?", 0, ""], ["b", "K", "{}", 0, "[1"], ["b", "K", "{}", 0, "1"]):
        refused(core, "put.many", "w", "q", *good, *bad)
    assert core.client.keys("*") == []


def test_replies_have_their_types(core: Core) -> None:
    assert core("put", "w", "q", "j", "K", "{}", 0) == "j"
    assert core("put.many", "w", "q", "a", "K", "{}", 0, "", "b", "K", "{}", 0, "") == 2
    assert core("get", "nobody") is None
    assert core("recur.get", "nobody") is None
    assert core("result", "nobody") is None
    assert core("due", "nothing") is None
    assert core("config.get", "no-such-option") is None
    assert core("config.get", "heartbeat") == 60
    assert core("config.get", "application") == "qless"
    assert core("config.set", "heartbeat", 30) is None
    assert core("config.get", "heartbeat") == "30"
    assert core("config.unset", "heartbeat") is None
    assert core("config.get", "max-job-history") is None
    assert core("track", "TRACK", "j") == "1"
    assert core("track", "Track", "j") == "0"
    assert core("track", "UnTrack", "j") == "1"
    assert core("priority", "j", 2.75) == 2
    assert core("pause", "q") is None
    assert core("unpause", "q") is None
    assert core("log", "j", "m") is None
    assert core("length", "q") == 3
    assert core("jobs", "running", "q") == []
    assert core("unrecur", "nobody") == 1
    core.now += 0.75
    core.popped(count=3)
    assert core("heartbeat", "j", "w") == 1_400_000_060
    assert core("retry", "j", "q", "w") == 4
    assert core("fail", "a", "w", "g", "m") == "a"
    assert core("unfail", "q", "g") == 1
    assert core("timeout", "b") is None
    assert core("cancel", "b", "nobody") == ["b", "nobody"]
    assert core("queue.forget", "q") is None
    assert core("worker.deregister", "w") is None


def test_empty_lists_are_objects(core: Core) -> None:
    for arguments in (
        ["multiget", "nobody"],
        ["multiget"],
        ["pop", "q", "w", 1],
        ["pop", "q", "w", 0],
        ["peek", "q", 1],
        ["failed"],
        ["tag", "top"],
        ["queues"],
    ):
        assert core(*arguments) == "{}"
    assert core("track") == '{"jobs":{},"expired":{}}'
    assert core("failed", "g") == '{"total":0,"jobs":{}}'
    assert core("tag", "get", "x") == '{"total":0,"jobs":{}}'
    core("worker.deregister", "w")
    assert core("workers") == "{}"
    assert core("workers", "w") == '{"jobs":{},"stalled":{}}'
    core.put(tags=[])
    assert core("tag", "add", "j") == "{}"
    job = core("get", "j")
    for name in ("tags", "dependents", "dependencies", "failure"):
        assert f'"{name}":{{}}' in job
    assert core.hash("j:j")["tags"] == "{}"
    core("recur", "q", "r", "K", "{}", "interval", 60, 60)
    assert '"tags":{}' in core("recur.get", "r")


def test_the_text_is_lua_that_every_server_takes() -> None:
    text = source()
    assert text.startswith("local prefix = 'ql:'\n")
    assert not re.search(r"\bgoto\b|::|//|\bsetfenv\b|\btable\.(move|pack|unpack)\b|\bbit\b|\butf8\b", code_of(text))
    for line in code_of(text).splitlines():
        assert not re.match(r"function\b", line), line
        assert len(line) <= 120
    assert len(set(SCRIPT_FILES)) == len(SCRIPT_FILES)


def code_of(text: str) -> str:
    return re.sub(r"--.*", "", text)


@pytest.mark.parametrize("bad", ["", "a'b", "a\nb", "a b", "ü:", "a\\"])
def test_prefixes_are_checked(bad: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        source(bad)


def test_texts_of_all_kinds_go_through(core: Core) -> None:
    odd = 'a "quoted" \\ back/slash\n\ttab \x7f é 日本 %d ]] '
    jid = f"jid {odd}"
    core("put", f"client {odd}", f"queue {odd}", jid, f"Klass {odd}", json.dumps({"x": odd}), 0, "tags", [odd])
    (job,) = core.json("pop", f"queue {odd}", f"worker {odd}", 1)
    assert (job["jid"], job["klass"], job["queue"]) == (jid, f"Klass {odd}", f"queue {odd}")
    assert json.loads(job["data"]) == {"x": odd}
    assert job["tags"] == [odd]
    assert [entry["what"] for entry in job["history"]] == ["put", "popped"]
    assert job["history"][1]["worker"] == f"worker {odd}"
    core("log", jid, odd, {"note": odd, "when": 5, "what": 6})
    assert core.get(jid)["history"][-1] == {"what": odd, "when": 1_400_000_000, "note": odd}
    core("fail", jid, f"worker {odd}", f"group {odd}", f"message {odd}")
    assert core.json("failed") == {f"group {odd}": 1}
    assert core.get(jid)["failure"]["message"] == f"message {odd}"
