"""The dependency graph on a job's page."""

from __future__ import annotations

import re

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from tests.integration.qless.admin.tools import path, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.redis]


def test_many_dependents_are_counted_and_told_apart(admin_client: Browser, jobs_site: Client) -> None:
    queue = jobs_site.queues["mail"]
    queue.put("shop.jobs.Publish", jid="body")
    for number in range(60):
        queue.put("shop.jobs.Part", jid=f"a-part-of-the-nightly-import-{number:02d}", depends=["body"])
    text = text_of(admin_client, path("job", "body"))
    graph = text[text.index('<svg class="resty-graph"') :]
    graph = graph[: graph.index("</svg>")]
    labels = re.findall(r'<text class="resty-second"[^>]*>([^<]*) · depends</text>', graph)
    assert len(labels) == len(set(labels)) == 12
    assert "…ort-" in labels[0]
    assert "and 48 more jobs" in graph
    height = re.search(r' height="(\d+)"', graph)
    assert height
    assert int(height[1]) < 800
    assert graph.count('class="resty-edge"') == 12


def test_a_small_graph_counts_nothing(admin_client: Browser, jobs_site: Client) -> None:
    queue = jobs_site.queues["mail"]
    first = queue.put("shop.jobs.Publish")
    queue.put("shop.jobs.Part", jid="second", depends=[first])
    queue.put("shop.jobs.Part", jid="third", depends=["second", first])
    text = text_of(admin_client, path("job", "second"))
    graph = text[text.index('<svg class="resty-graph"') :].split("</svg>")[0]
    assert " more job" not in graph
    assert graph.count('class="resty-edge"') == 2
    assert f"<title>{first}</title>" in graph
    assert f"{first[:16]}…" in graph
