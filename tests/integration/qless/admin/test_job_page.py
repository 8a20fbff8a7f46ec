"""A job's page: the failure first, with the place that raised it, and the history as a timeline."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.admin.jobs import history as job_history
from resty_django.qless.outcomes.error_text import message_of
from resty_django.txid import bound
from tests.integration.html_pages import sound
from tests.integration.qless.admin.tools import failed, fill, path, person, text_of
from tests.integration.qless.conftest import pop
from tests.integration.qless.tasks import raising

pytestmark = [pytest.mark.django_db, pytest.mark.redis]


def message(depth: int = 3) -> str:
    try:
        raising.parse(depth)
    except ValueError as error:
        return message_of(error)
    pytest.fail("nothing was raised")


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", text)))


def steps(text: str) -> list[str]:
    """Return the texts of the timeline."""
    (timeline,) = re.findall(r'(?s)<ol class="resty-steps">(.*?)</ol>', text)
    return [plain(step.replace("</p>", " ")).strip() for step in re.findall(r"(?s)<li[^>]*>(.*?)</li>", timeline)]


def test_a_job_of_a_stopped_worker_waits(admin_client: Browser, jobs_site: Client) -> None:
    jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid="j")
    job = pop(jobs_site.queues["mail"])
    job.log("worker stopped", {"worker": "here-1"})
    job.timeout()
    text = text_of(admin_client, path("job", "j"))
    assert [re.sub(r" (now|\d).*", "", step) for step in steps(text)] == [
        "Put in mail",
        "Popped by here-1",
        "Returned to its queue: the worker here-1 was stopped",
    ]
    assert re.search(r'<p class="resty-now">.*waiting', text)
    for word in ("stalled", "Lock expired"):
        assert word not in plain(text[text.index('id="content-main"') :])
    assert pop(jobs_site.queues["mail"]).jid == "j"
    assert re.search(r'<p class="resty-now">.*running', text_of(admin_client, path("job", "j")))


def test_a_job_shows_the_request_id_of_the_caller(admin_client: Browser, jobs_site: Client) -> None:
    with bound(request_id="web-1.example_7"):
        jobs_site.queues["mail"].put("K", {}, jid="j")
    assert re.search(r"Request ID ?web-1\.example_7", plain(text_of(admin_client, path("job", "j"))))
    forged = ("txid", "0123", "request_id", "<b>bold</b>\n")
    jobs_site.call("put", "w", "mail", "j", "K", "{}", 0, *forged)
    text = text_of(admin_client, path("job", "j"))
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold" in text


@pytest.mark.parametrize("url", [path("job", "j"), path("failuregroup", "mail-ValueError")])
def test_pages_begin_with_the_error_and_its_location(admin_client: Browser, jobs_site: Client, url: str) -> None:
    jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid="j")
    pop(jobs_site.queues["mail"]).fail("mail-ValueError", message())
    text = sound(text_of(admin_client, url))
    content = text[text.index('id="content-main"') :]
    shown = plain(content)
    start = shown.index("invalid literal for int")
    assert (
        start
        < shown.index("Raised at tests/integration/qless/tasks/raising.py:")
        < shown.index("object_hook=lambda row")
    )
    assert start < min(content.index(word) for word in ("resty-doors", "<details"))
    folded = content[content.index("<details") : content.index("</details>")]
    assert " open" not in folded.partition(">")[0]
    assert "Traceback (most recent call last)" in folded
    library = re.findall(r'(?s)<span class="resty-library">(.*?)</span>', folded)
    assert any("/json/" in line for line in library)
    assert not any("raising.py" in line for line in library)
    assert 'hidden data-resty-copy="resty-message"' in content
    assert plain(folded).endswith(plain(html.escape(message())))
    assert "resty_qless/copy.js" in text
    assert ("Latest failure" in shown) == ("failuregroup" in url)


def test_message_without_a_traceback_is_not_folded(admin_client: Browser, jobs_site: Client) -> None:
    jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid="j")
    pop(jobs_site.queues["mail"]).fail("mail-No", "only <this>")
    text = sound(text_of(admin_client, path("job", "j")))
    assert '<p class="resty-error">only &lt;this&gt;</p>' in text
    assert "resty-message" not in text
    assert "Raised" not in text


def test_long_messages_keep_their_end(admin_client: Browser, jobs_site: Client) -> None:
    jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid="j")
    pop(jobs_site.queues["mail"]).fail("mail-No", f"the beginning\n{'x' * 50_000}\nthe end")
    text = sound(text_of(admin_client, path("job", "j")))
    assert "the beginning" in text
    assert "the end" in text
    assert len(text) < 50_000


def test_failure_of_a_job_that_runs_again_is_not_first(admin_client: Browser, jobs_site: Client) -> None:
    failed(jobs_site, "j")
    admin_client.post(path("job", "j", "retry"))
    text = sound(text_of(admin_client, path("job", "j")))
    assert text.index("resty-live-job") < text.index("resty-error")


def test_history_is_a_timeline(admin_client: Browser, jobs_site: Client) -> None:
    start = int(jobs_site.clock())

    def at(seconds: int) -> None:
        jobs_site.clock = lambda: start + seconds  # type: ignore[misc]

    at(0)
    jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid="j", retries=3)
    at(5)
    pop(jobs_site.queues["mail"]).retry(group="mail-Busy", message="not now")
    at(7)
    retried = steps(text_of(admin_client, path("job", "j")))[2:]
    assert retried == ["Retried by here-1 after mail-Busy 2 s ago 2 s waiting so far"]
    at(65)
    job = pop(jobs_site.queues["mail"])
    at(70)
    job.log("half done", {"password": "hunter2", "rows": 5})
    at(75)
    job.fail("mail-Timeout", "no answer")
    at(3675)
    admin_client.post(path("job", "j", "move"), {"queue": "mail"})
    pop(jobs_site.queues["mail"]).complete(next="print")
    at(3676)
    pop(jobs_site.queues["print"]).complete()
    at(3686)
    text = sound(text_of(admin_client, path("job", "j")))
    assert "hunter2" not in text
    assert steps(text) == [
        "Put in mail 1 h 1 min ago 5 s waiting",
        "Popped by here-1 1 h 1 min ago 1 min running",
        "Popped by here-1, run 2 1 h ago 5 s running",
        "half done 1 h ago password [redacted], rows 5 5 s running",
        "Failed in here-1: mail-Timeout 1 h ago 1 h failed",
        "Retried in mail 11 s ago",
        "Popped by here-1, run 3 11 s ago",
        "Completed 11 s ago",
        "Moved to print 11 s ago 1 s waiting",
        "Popped by here-1, run 4 10 s ago",
        "Completed 10 s ago",
    ]


def test_long_histories_are_shortened(
    admin_client: Browser, jobs_site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_history, "MAX_ENTRIES", 5)
    jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid="j")
    job = pop(jobs_site.queues["mail"])
    for number in range(9):
        job.log(f"row {number}")
    shown = steps(text_of(admin_client, path("job", "j")))
    assert len(shown) == 5
    assert shown[0].endswith("6 steps are not shown.")
    assert [step[:5] for step in shown[1:]] == ["row 5", "row 6", "row 7", "row 8"]


def buttons(text: str) -> list[str]:
    """Return the texts of the links, buttons and folded parts of a page's content."""
    content = text[text.index('id="content-main"') : text.index('id="footer"')]
    shown = re.sub(r"(?s)</summary>.*?</details>", "</summary>", content)
    tags = r"(?s)<(?:a|button)\b[^>]*\bclass=\"button[^>]*>(.*?)</(?:a|button)>|<summary>(.*?)</summary>"
    return [plain(link or summary) for link, summary in re.findall(tags, shown)]


def test_each_state_has_one_way_to_run_the_job(admin_client: Browser, jobs_site: Client) -> None:
    """Visible without opening anything; connected jobs have their own section. The priority is shown once."""
    jids = fill(jobs_site)
    common = ["Track", "Delete", "Set", "Add a tag"]
    connected = ["Retry the failed steps", "Delete all connected jobs"]
    for state, expected in {
        "failed": ["Complete message", "Retry", "Move", *common],
        "scheduled": ["Run now", "Move", *common],
        "waiting": ["Move", *common, *connected],
        "running": ["Move", "Track", "Time out", *common[1:]],
        "complete": ["Move", *(text for text in common if text != "Delete")],
    }.items():
        text = sound(text_of(admin_client, path("job", jids[state])))
        found = [text for text in buttons(text) if text != "Copy the message"]
        assert found == expected, state
        assert "Cancel" not in text.partition('id="resty-live-events"')[0], state
        assert text.count('name="priority"') == 1 + text.count('type="hidden" name="priority"')
        assert '<th scope="row">Priority</th>' not in text
    assert '<th scope="row">Priority</th><td>5</td>' in text_of(person("view_job"), path("job", "waiting-1"))
