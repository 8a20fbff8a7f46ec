"""Groups, connected jobs, callbacks and stuck jobs in the admin."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client as Browser
from redis import Redis

from resty_django.qless import Client
from resty_django.qless.admin import groups
from resty_django.qless.admin.jobs import graph_operations as graph_actions
from resty_django.qless.clients import graph
from tests.integration.html_pages import sound
from tests.integration.qless.admin.tools import ROOT, path, person, plain, text_of
from tests.integration.qless.conftest import pop
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

STUCK = f"{ROOT}job/stuck/"


def end(client: Client, jid: str, *, fails: bool = False) -> None:
    """Run a waiting job."""
    client.jobs.multiget(jid)[0].priority = 1000
    job = pop(client.queues["mail"])
    assert job.jid == jid
    if fails:
        job.fail("mail-Timeout", "Timeout: nothing said")
    else:
        job.complete()


@pytest.fixture
def grouped(jobs_site: Client) -> Client:
    """A site with a group of two chains and a plain job, whose callback and body wait for its end."""
    queue = jobs_site.queues["mail"]
    callback = ["done-7", "reports", "shop.jobs.Report", {"import": 7}]
    jobs_site.groups.open("import-7", "Import of May", on_failure=[callback])
    for chain in "ab":
        queue.put("shop.jobs.Fetch", jid=f"{chain}-1")
        outcome = {"policy": "fail", "group": "import-7"}
        queue.put("shop.jobs.Store", jid=f"{chain}-2", depends=[f"{chain}-1"], outcome=outcome)
    queue.put("shop.jobs.Check", jid="check", outcome={"group": "import-7"})
    queue.put("shop.jobs.Publish", jid="body", depends=["import-7"], outcome={"policy": "fail"})
    jobs_site.groups.close("import-7")
    return jobs_site


def test_the_list_of_groups_shows_their_progress(admin_client: Browser, grouped: Client) -> None:
    end(grouped, "check")
    for number in range(30):
        grouped.groups.open(f"g{number}", f"Name {number}")
    first = sound(text_of(admin_client, path("jobgroup")))
    assert "Name 29" in first
    assert "Import of May" not in first
    second = sound(text_of(admin_client, f"{path('jobgroup')}?p=2"))
    assert f'<a href="{path("jobgroup", "import-7")}">Import of May</a>' in second
    assert '<progress max="3" value="1" aria-label="Members that have ended">' in second
    assert "1 of 3" in second
    assert text_of(admin_client, f"{path('jobgroup')}?p=99").count("resty-is-") == second.count("resty-is-")


def test_the_page_of_a_group_shows_members_and_callbacks(admin_client: Browser, grouped: Client) -> None:
    end(grouped, "a-1", fails=True)
    end(grouped, "check")
    text = sound(text_of(admin_client, path("jobgroup", "import-7")))
    assert "<h1>Import of May</h1>" in text
    assert '<progress max="3" value="2"' in text
    facts = dict(re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', text))
    assert "running" in plain(facts["State"])
    assert path("job", "a-2") in facts["Failed first"]
    for jid in ("a-2", "b-2", "check"):
        assert path("job", jid) in text
    assert "Report" in text
    assert "not enqueued yet" in text
    end(grouped, "b-1")
    end(grouped, "b-2")
    text = sound(text_of(admin_client, path("jobgroup", "import-7")))
    assert path("job", "done-7") in text
    assert "not enqueued yet" not in text
    sound(text_of(admin_client, path("jobgroup", "none"), 404))


def test_members_are_listed_in_pages(admin_client: Browser, jobs_site: Client) -> None:
    jobs_site.groups.open("many", "")
    members = ({"klass": "K", "jid": f"m{number:02}", "outcome": {"group": "many"}} for number in range(60))
    jobs_site.queues["mail"].put_many(members)
    jobs_site.bulk_cancel(["m31"])
    shown = [
        re.findall(r'href="[^"]*/job/(m\d\d)/change/"', text_of(admin_client, f"{path('jobgroup', 'many')}?p={page}"))
        for page in (1, 2, 3)
    ]
    assert [jids[0] for jids in shown] == ["m00", "m25", "m50"]
    assert "m31" in shown[1]
    assert sum(map(len, shown)) == 60


def test_a_group_is_retried_and_canceled(admin_client: Browser, grouped: Client) -> None:
    end(grouped, "a-1", fails=True)
    retry, cancel = path("jobgroup", "import-7", "retry"), path("jobgroup", "import-7", "cancel")
    text = sound(text_of(admin_client, retry))
    assert "Failed members</th><td>1 job<" in text
    assert grouped.jobs.multiget("a-1")[0].state == "failed"
    admin_client.post(retry)
    assert [job.state for job in grouped.jobs.multiget("a-1", "a-2")] == ["waiting", "depends"]
    text = sound(text_of(admin_client, cancel))
    assert "Members that have not ended</th><td>3 jobs<" in text
    assert len(grouped.jobs.multiget("a-1", "a-2", "b-1", "b-2", "check")) == 5
    reply = admin_client.post(cancel, follow=True)
    assert "Canceled 5 jobs of the group." in reply.content.decode()
    assert grouped.jobs.multiget("a-1", "a-2", "b-1", "b-2", "check") == []
    assert grouped.jobs.multiget("body")[0].state == "failed"
    assert logged() == ["Retried 1 job of the group.", "Canceled 5 jobs of the group."]
    text = sound(text_of(admin_client, path("jobgroup", "import-7")))
    assert cancel not in text
    assert "Canceled 5 jobs" in text_of(admin_client, path("jobgroup", "import-7", "history"))


def test_groups_that_are_too_large_or_gone(
    admin_client: Browser, grouped: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_MEMBERS", 2)
    monkeypatch.setattr(graph_actions, "MAX_CONNECTED", 4)
    for url in (path("jobgroup", "import-7", "cancel"), path("job", "check", "cancel-graph")):
        reply = admin_client.post(url, follow=True)
        assert re.search("has more than 2 members|More than 4 jobs are connected", reply.content.decode()), url
    assert len(grouped.jobs.multiget("a-1", "check", "body")) == 3
    reply = admin_client.post(path("jobgroup", "none", "cancel"), follow=True)
    assert "This group does not exist" in reply.content.decode()
    assert logged() == []


def test_the_page_of_a_job_shows_what_it_waits_for_and_calls(admin_client: Browser, grouped: Client) -> None:
    queue = grouped.queues["mail"]
    callback = ["later", "reports", "shop.jobs.Told", {"n": 1}]
    queue.put("shop.jobs.Store", jid="c", depends=["a-1"], outcome={"policy": "skip", "complete": [callback]})
    text = sound(text_of(admin_client, path("job", "c")))
    for words in ("this job is skipped", "any end", "shop.jobs.Told", "not enqueued yet"):
        assert words in plain(text)
    assert path("jobgroup", "import-7") in text_of(admin_client, path("job", "a-2"))
    body = sound(text_of(admin_client, path("job", "body")))
    assert path("jobgroup", "import-7") in body
    assert path("job", "import-7") not in body
    end(grouped, "a-1", fails=True)
    text = sound(text_of(admin_client, path("job", "a-2")))
    facts = dict(re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', text))
    assert path("job", "a-1") in facts["Failed because of"]
    skipped = plain(sound(text_of(admin_client, path("job", "c"))))
    assert "skipped, because a job for which it waited failed or was skipped" in skipped
    assert "callback enqueued" in skipped
    assert path("job", "later") in text_of(admin_client, path("job", "c"))
    assert "resty-is-skipped" in text_of(admin_client, f"{path('job')}?state=complete")
    grouped.retry_graph("a-1")
    assert "waits again, because the failed job is retried" in text_of(admin_client, path("job", "a-2"))


def test_connected_jobs_are_retried_and_canceled(admin_client: Browser, grouped: Client) -> None:
    end(grouped, "a-1", fails=True)
    retry, cancel = path("job", "a-2", "retry-graph"), path("job", "a-2", "cancel-graph")
    for url in (retry, cancel):
        assert url in text_of(admin_client, path("job", "a-2"))
    text = sound(text_of(admin_client, retry))
    assert "Connected</th><td>6 jobs<" in text
    assert "Failed in a run</th><td>1 job<" in text
    assert "Retried 1 job." in admin_client.post(retry, follow=True).content.decode()
    assert grouped.jobs.multiget("a-1")[0].state == "waiting"
    text = sound(text_of(admin_client, cancel))
    assert "Not complete</th><td>6 jobs<" in text
    assert "Deleted 6 jobs." in admin_client.post(cancel, follow=True).content.decode()
    assert grouped.jobs.multiget("a-1", "a-2", "b-1", "b-2", "check", "body") == []
    assert logged() == ["Retried 1 job.", "Deleted 6 jobs."]


def test_an_interrupted_operation_is_logged(
    admin_client: Browser, jobs_site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs that wait for each other can only be canceled together; the third one is canceled before them."""
    queue = jobs_site.queues["mail"]
    queue.put("shop.jobs.Send", jid="a")
    queue.put("shop.jobs.Send", jid="b", depends=["a"])
    queue.put("shop.jobs.Send", jid="a", depends=["b"])
    queue.put("shop.jobs.Send", jid="c", depends=["b"])
    monkeypatch.setattr(graph, "JOBS_PER_CALL", 1)
    reply = admin_client.post(path("job", "a", "cancel-graph"), follow=True)
    assert "is a dependency of" in reply.content.decode()
    assert {job.jid for job in jobs_site.jobs.multiget("a", "b", "c")} == {"a", "b"}
    (entry,) = logged()
    assert entry.startswith("Delete all connected jobs: interrupted, some jobs may have changed. Cancel(): ")


def test_stuck_jobs_are_shown_and_released(admin_client: Browser, jobs_site: Client, valkey: Redis) -> None:
    queue = jobs_site.queues["mail"]
    assert "Stuck jobs" not in text_of(admin_client, path("queue"))
    for jid in "ab":
        queue.put("shop.jobs.Send", jid=jid)
        queue.put("shop.jobs.Send", jid=f"{jid}-waits", depends=[jid])
    assert "wait for something" not in text_of(admin_client, path("queue", "mail"))
    assert STUCK in text_of(admin_client, path("queue"))
    assert "No stuck jobs." in sound(text_of(admin_client, STUCK))
    valkey.delete("ql:j:a")
    valkey.srem("ql:j:b-waits-dependencies", "b")
    queue.put("shop.jobs.Send", jid="loop", depends=["loop"])
    notice = "3 jobs wait for something that will not end."
    assert f'<a href="{STUCK}?queue=mail">{notice}</a>' in sound(text_of(admin_client, path("queue", "mail")))
    for url in (STUCK, f"{STUCK}?queue=mail"):
        text = plain(sound(text_of(admin_client, url)))
        assert "It waits for a job that does not exist, because another client deleted it. a " in text
        assert "It waits for itself." in text
        assert "It waits for no job" in text
        assert "Examined 3 jobs." in text
    releases = re.findall(r'<a href="([^"]*)">release</a>', text_of(admin_client, STUCK))
    assert len(releases) == 3
    for url in releases:
        sound(text_of(admin_client, unescape(url)))
        admin_client.post(unescape(url))
    assert {job.state for job in jobs_site.jobs.multiget("a-waits", "b-waits", "loop")} == {"waiting"}
    assert len(logged()) == 3
    assert "No stuck jobs." in text_of(admin_client, STUCK)
    assert "release" not in text_of(person("view_job"), f"{STUCK}?queue=mail")


def test_the_list_of_stuck_jobs_is_bounded(admin_client: Browser, jobs_site: Client, valkey: Redis) -> None:
    queue = jobs_site.queues["mail"]
    queue.put("shop.jobs.Send", jid="a")
    queue.put_many({"klass": "K", "depends": ["a"]} for _ in range(1050))
    queue.put("shop.jobs.Send", jid="loop", depends=["loop"])
    calls = commands(valkey, lambda: text_of(admin_client, path("queue", "mail")))
    assert calls["stuck"] == 1
    calls = commands(valkey, lambda: text_of(admin_client, f"{STUCK}?queue=mail"))
    assert calls["stuck"] == 10
    text = text_of(admin_client, f"{STUCK}?queue=mail")
    assert "Examined 1,000 jobs." in text
    assert "No matches so far." in text
    (following,) = re.findall(r'href="(\?[^"]*cursor=[^"]*)"', text)
    assert "It waits for itself." in text_of(admin_client, f"{STUCK}{unescape(following)}")


def commands(valkey: Redis, action: Any) -> dict[str, int]:
    """Return how often each command of the core was called."""
    with valkey.monitor() as monitor:
        action()
        valkey.set("end", 1)
        counts: dict[str, int] = {}
        for entry in monitor.listen():
            words = entry["command"].split()
            if words[0].upper() == "SET":
                return counts
            if words[0].upper() in ("EVALSHA", "EVAL") and len(words) > 3:
                counts[words[3]] = counts.get(words[3], 0) + 1
    return counts


def test_selected_stuck_jobs_are_released_and_canceled(admin_client: Browser, jobs_site: Client) -> None:
    for name in "abc":
        jobs_site.queues["mail"].put("K", jid=name, depends=[name])
    text = text_of(admin_client, f"{STUCK}?queue=mail")
    assert text.count('name="pick"') == 3
    action = re.search(r'<form method="post" action="([^"]*)" id="resty-picks">', text)
    assert action
    url = unescape(action[1])
    confirmation = admin_client.post(url, {"verb": "release", "pick": ["a", "b"]}).content.decode()
    assert "2 of 2 jobs selected." in confirmation
    assert "not even for those that still run" in confirmation
    reply = admin_client.post(url, {"verb": "release", "pick": ["a", "b"], "confirmed": "yes"}, follow=True)
    assert "Released 2 jobs." in reply.content.decode()
    assert reply.redirect_chain[-1][0] == f"{STUCK}?queue=mail"
    assert [jobs_site.jobs.multiget(jid)[0].state for jid in "abc"] == ["waiting", "waiting", "depends"]
    admin_client.post(url, {"verb": "cancel", "pick": ["c"], "confirmed": "yes"})
    assert jobs_site.jobs.multiget("c") == []
    assert logged() == ["Remove all dependencies."] * 2 + ["Delete."]
    assert 'name="pick"' not in text_of(admin_client, STUCK)
    assert person("view_job").post(url, {"verb": "release", "pick": ["a"], "confirmed": "yes"}).status_code == 403
