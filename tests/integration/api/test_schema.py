"""The whole HTTP API against its OpenAPI document: no 5xx, and no response that the document does not describe."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any, Final

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, seed, settings

from resty_django.qless import Client
from tests.integration.api.site import AUTHORIZATION, PATHS, known_names

schemathesis = pytest.importorskip("schemathesis")
conformance = pytest.importorskip("schemathesis.specs.openapi.checks")

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.redis, pytest.mark.timeout(600)]

EXAMPLES: Final = 3
"""Requests to each operation in each mode: valid and invalid ones."""
CHECKS: Final = [
    schemathesis.checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]


@pytest.fixture
def operations(api_site: Client) -> Iterator[list[Any]]:
    """Return the operations of the document that the site serves."""
    for signal in (request_started, request_finished):  # as Django's own test client does
        signal.disconnect(close_old_connections)
    schema = schemathesis.openapi.from_wsgi("/api/schema/?format=json", WSGIHandler())
    yield [result.ok() for result in schema.get_all_operations() if result.ok().path.startswith(PATHS)]
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def test_every_part_of_the_api_is_in_the_document(operations: list[Any]) -> None:
    assert {path for path in PATHS if any(operation.path.startswith(path) for operation in operations)} == set(PATHS)
    assert len(operations) > 20


@pytest.mark.parametrize("mode", schemathesis.GenerationMode, ids=lambda mode: mode.value)
def test_every_response_matches_the_document(operations: list[Any], mode: Any) -> None:
    failures: list[str] = []
    for operation in operations:
        if mode is schemathesis.GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # nothing can be wrong; Hypothesis would search for seconds
        placeholder = next((parameter.name for parameter in operation.path_parameters), None)
        for name in [None, *known_names(operation.path)] if placeholder else [None]:
            path_parameters = {} if name is None else {"path_parameters": {placeholder: name}}
            try:
                ask(operation.as_strategy(generation_mode=mode, **path_parameters))
            except Exception as error:
                failures.append(f"{operation.label}: {''.join(traceback.format_exception_only(error))}")
    assert not failures, "\n\n".join(failures)


def ask(strategy: Any) -> None:
    @seed(15)
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def call(case: Any) -> None:
        case.headers["Authorization"] = AUTHORIZATION
        case.call_and_validate(checks=CHECKS)

    call()
