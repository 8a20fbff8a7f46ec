"""The pages of the job queue in a real browser, under the demo's strict content security policy."""

from __future__ import annotations

import re
import time

import msgspec
import pytest

from resty_django.qless import Client
from resty_django.qless.clients.worker_reports import Frame, JobStack, WorkerStacks
from tests.e2e.browser import OpenPage
from tests.integration.qless.admin.tools import failed, fill, hostile, path, report
from tests.integration.qless.conftest import pop

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.redis,
    pytest.mark.timeout(600),
]

RULES_OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""Rules of axe whose answer differs between light and dark."""

PAGES = (f"{path('queue', 'mail')}?tab=stats&period=day", path("worker"), path("worker", "here-1"))
"""Pages with charts, and with the stacks of a worker that is stuck; `test_layout_browser` visits all others."""


@pytest.fixture
def busy(jobs_site: Client) -> Client:
    """Return a site whose queues were busy for some hours."""
    now = jobs_site.clock()
    for hour in range(20):
        for n in range(3 + hour % 7):
            at = now - 3600 * (20 - hour) + 37 * n
            jobs_site.clock = lambda at=at: at  # type: ignore[misc]
            jobs_site.queues["mail"].put("shop.jobs.SendInvoice", {"order": n})
            job = pop(jobs_site.queues["mail"])
            jobs_site.clock = lambda at=at + 2 * n + hour: at  # type: ignore[misc]
            job.complete()
    for n in reversed(range(12)):
        jobs_site.clock = lambda at=now - 400 * n: at  # type: ignore[misc]
        failed(jobs_site, f"broken-{n}", group="pdf-MemoryError" if n % 3 else "mail-Timeout", queue="pdf")
    jobs_site.clock = lambda: now  # type: ignore[misc]
    fill(jobs_site)
    jobs_site.queues["mail"].put_many(
        [{"klass": "shop.jobs.SendInvoice", "data": {"order": n}, "tags": ["nightly"]} for n in range(40)]
    )
    jobs_site.queues["pdf"].pause(reason="until the new renderer is ready", by="ann")
    jobs_site.clock = time.time  # type: ignore[misc]
    late = {"jid": "running-1", "klass": "shop.jobs.Send", "seconds": 7200.0, "usual": 2.0}
    report(jobs_site, "here-1", jobs=[late])
    report(jobs_site, "web1-4711", state="quiet")
    frames = [Frame("/usr/lib/python3.13/threading.py", 9, "run", "self._target()"), Frame("/srv/jobs.py", 7, "send")]
    stacks = WorkerStacks(id=1, at=now, jobs=[JobStack(jid="running-1", klass="Send", seconds=7200.0, frames=frames)])
    jobs_site.call("worker.stacks", "here-1", msgspec.json.encode(stacks))
    return jobs_site


def test_pages_with_charts_and_stacks_are_accessible(open_page: OpenPage, busy: Client) -> None:
    tab = open_page()
    problems = []
    for url in PAGES:
        tab.emulate_media(color_scheme="light")
        tab.goto(url)
        assert tab.locator("#content-main, #content").count(), url
        problems += [f"{url}: {problem}" for problem in open_page.violations(tab)]
        tab.emulate_media(color_scheme="dark")
        problems += [f"{url} in dark: {problem}" for problem in open_page.violations(tab, runOnly=RULES_OF_COLOURS)]
    assert not problems, "\n".join(problems)


def test_hostile_names_run_nothing(open_page: OpenPage, jobs_site: Client) -> None:
    name = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    queue = jobs_site.queues[name]
    queue.put(name, {name: name}, jid=name, tags=[name])
    queue.pop().fail(name, name)  # type: ignore[union-attr]
    hostile(jobs_site)
    page = open_page()
    for url in (path("queue"), path("queue", name), path("job"), path("job", name), path("failuregroup", name)):
        page.goto(url)
        assert "run" not in page.title().split("|")[-1]
        assert page.locator("img[src=x]").count() == 0


def test_a_job_is_deleted_by_keyboard_alone(open_page: OpenPage, busy: Client) -> None:
    page = open_page()
    page.goto(path("queue"))

    def tab_to(what: str) -> None:
        for _ in range(200):
            page.keyboard.press("Tab")
            if (
                page.evaluate(
                    "document.activeElement.matches(':focus-visible') && document.activeElement.textContent.trim()"
                )
                == what
            ):
                style = page.evaluate(
                    "(() => { const s = getComputedStyle(document.activeElement);"
                    " return s.outlineStyle + s.textDecorationLine + s.borderBottomStyle; })()"
                )
                assert style != "nonenonenone", what
                return
        pytest.fail(f"{what} cannot be reached by the Tab key")

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the link that skips the head
    tab_to("Jobs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/job/")
    page.locator("#resty-find").focus()
    page.keyboard.type("scheduled-1")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/scheduled"))
    tab_to("Delete")
    page.keyboard.press("Enter")
    page.wait_for_url("**/cancel/")
    page.locator("input[type=submit].default").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/job/")
    assert "Deleted" in page.locator(".messagelist").inner_text()
    assert busy.jobs.get("scheduled-1") is None


def test_figures_are_live_and_can_be_stopped(open_page: OpenPage, busy: Client) -> None:
    page = open_page()
    page.goto(path("queue"))
    waiting = page.locator(".resty-figure", has_text="Waiting").locator("dd")
    before = waiting.inner_text()
    busy.queues["mail"].put_many([{"klass": "K", "data": {}} for _ in range(5)])
    expected = str(int(before) + 5)
    waiting.get_by_text(expected, exact=True).wait_for()
    page.get_by_role("button", name="Stop live updates").click()
    stopped = int(expected)
    busy.queues["mail"].put("K", {})
    with page.expect_response("**/queue/"):
        page.get_by_role("button", name="Start live updates").click()
    waiting.get_by_text(str(stopped + 1), exact=True).wait_for()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_group_is_retried(open_page: OpenPage, busy: Client, scripts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from resty_django.qless.admin.jobs import bulk

    monkeypatch.setattr(bulk, "JOBS_PER_STEP", 25)
    for n in range(60):
        failed(busy, f"f{n}", group="mail-Many")
    page = open_page(scripts=scripts)
    page.goto(path("failuregroup", "mail-Many"))
    page.get_by_role("button", name="Retry all").click()
    assert "60 jobs: the entire list." in page.locator("#content-main").inner_text()
    page.locator("input[type=submit].default").click()
    if not scripts:
        for _ in range(2):
            page.get_by_role("button", name="Continue").click()
    page.locator(".messagelist").wait_for()
    assert "Retried 60 jobs." in page.locator(".messagelist").inner_text()
    assert "mail-Many" not in busy.jobs.failed()


def test_jobs_are_chosen_and_tagged(open_page: OpenPage, busy: Client) -> None:
    page = open_page()
    page.goto(f"{path('queue', 'mail')}?tab=waiting")
    page.get_by_label("Select all rows on this page").check()
    page.get_by_label("Action", exact=True).select_option("tag")
    page.get_by_role("button", name="Go", exact=True).click()
    page.get_by_label("Tag").fill("chosen")
    page.locator("input[type=submit].default").click()
    page.locator(".messagelist").wait_for()
    assert busy.jobs.tagged("chosen").total == 25
