"""Pages of the admin, and of a refusal, in the languages of the package."""

from __future__ import annotations

from typing import Any, Final

import pytest
from django.http import HttpResponse
from django.test import Client as Browser
from django.test import RequestFactory
from django.utils import translation

from resty_django.limits import limit_window
from tests.e2e.conftest import long_names
from tests.e2e.layout import SEEDS
from tests.integration.limits.policy_tools import limits_site
from tests.integration.pseudo import texts_and_values
from tests.integration.qless.admin.tools import path
from tests.unit.test_translations import entries

__all__ = ["limits_site", "long_names"]

LANGUAGES: Final = {"de": "de", "zh-hans": "zh_Hans"}
LISTS: Final = (
    *(path(model) for model in ("job", "queue", "worker", "recurringjob", "failuregroup", "jobgroup", "option")),
    *(f"/admin/resty_limits/{model}/" for model in ("limitpolicy", "limitoverride", "keyban", "quotausage")),
    *(f"/admin/resty_ids/{model}/" for model in ("idrule", "idcounter")),
    "/admin/resty_limits/limitpolicy/add/",
    "/admin/resty_ids/idrule/add/",
    "/admin/resty_cache/cache/",
    "/admin/resty_django/shareddictionary/",
)


@pytest.mark.redis
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_of_pages_are_translated(admin_client: Browser, long_names: Any, language: str) -> None:
    translated = entries(LANGUAGES[language])
    english = {
        text.singular for text, forms in translated.items() if " " in text.singular and text.singular not in forms
    }
    translations = {form for forms in translated.values() for form in forms}
    problems, known = [], 0
    with translation.override(language):
        for url in (*SEEDS, *LISTS):
            response = admin_client.get(url)
            texts = [" ".join(text.text.split()) for text in texts_and_values(response.content.decode())[0]]
            problems += [f"{text!r} in {url}" for text in texts if text in english]
            known += sum(text in translations for text in texts)
    assert problems == []
    assert known > 500


@pytest.mark.parametrize(("language", "heading"), [("de", "Zu viele Anfragen"), ("zh-hans", "请求过多")])
def test_a_visitor_reads_why_a_request_was_refused(language: str, heading: str) -> None:
    limited = limit_window("1/h", name=f"visitors-{language}")(lambda request: HttpResponse())
    request = RequestFactory().get("/", headers={"Accept": "text/html"})
    with translation.override(language):
        assert limited(request).status_code == 200
        refusal = limited(request)
    assert refusal.status_code == 429
    assert heading in refusal.content.decode()
