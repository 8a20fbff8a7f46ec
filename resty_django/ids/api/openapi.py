"""OpenAPI descriptions of the views, for drf-spectacular. Without drf-spectacular they have no effect."""

from __future__ import annotations

from typing import Any

from resty_django.api.openapi import (
    REQUEST_ERRORS,
    Examples,
    describe,
    path_parameter,
    request_example,
    response_example,
    responses,
    spectacular,
)

from .serializers import (
    AppQuerySerializer,
    CounterQuerySerializer,
    IdCounterSerializer,
    IdErrorSerializer,
    IdPositionSerializer,
    IdPreviewedSerializer,
    IdPreviewSerializer,
    IdRequestSerializer,
    IdRuleSerializer,
    IdsSerializer,
)

_ERRORS: Examples = {
    **REQUEST_ERRORS,
    400: (
        "The body is not JSON, a field is wrong or missing, or the rule cannot use a value.",
        {
            "bad_count": {"message": "The count is 5000. Use a whole number from 1 to 1000 (MAX_COUNT)."},
            "bad_request": {
                "message": "The request is not valid: count: A valid integer is required.",
                "details": {"fields": {"count": ["A valid integer is required."]}},
            },
        },
    ),
    404: ("The rule or counter does not exist.", {"unknown_rule": {"message": "There is no rule 'order'."}}),
    409: (
        "Not possible in the current state: the counter is used up, or the rule does not issue IDs over HTTP.",
        {
            "exhausted": {
                "message": "Counter order/shop has given out all its numbers up to 999999. It starts again with the "
                "next cycle.",
                "details": {"until": 1795305600},
            },
            "needs_transaction": {
                "message": "Rule invoice is gapless. Ask for its numbers from Python, inside transaction.atomic()."
            },
        },
    ),
    429: (
        "Too many requests; see Retry-After.",
        {"rate_limited": {"message": "New application names come faster than 50 a second (NEW_NAMES_PER_SECOND)."}},
    ),
    500: ("The rule itself failed.", {"rule_failed": {"message": "Lua rule order took longer than 50 ms"}}),
    503: (
        "No reserved numbers are left and the database does not answer; see Retry-After.",
        {
            "unavailable": {
                "message": "No reserved numbers are left and the database did not answer in time. Try again shortly."
            }
        },
    ),
}
_RULE_ERRORS: Examples = {
    **REQUEST_ERRORS,
    400: (
        "The body is not JSON, a field is wrong or missing, or the rule is not valid.",
        {
            "bad_rule": {
                "message": "The rule is not valid: source: At character 1 ('{nope}'): {nope} is not a field. Use "
                "counter, now, salt, app, rule, node, rand, luhn, damm, mod97.",
                "details": {"fields": {"source": ["At character 1 ('{nope}'): ..."]}, "position": 0},
            }
        },
    ),
    412: (
        "The rule's version differs from `If-Match`.",
        {
            "precondition_failed": {
                "message": "The object has the version 4 now, which If-Match does not name. Read it again, and repeat."
            }
        },
    ),
    409: (
        "The change is risky and was not confirmed, or the rule is declared in the settings.",
        {
            "risks_unconfirmed": {
                "message": "Earlier IDs could be issued again. To make the change anyway, repeat the request with "
                "confirm_risks true.",
                "details": {"risks": ["The text of IDs changes: make sure that no new ID can equal an earlier one."]},
            }
        },
    ),
}
_REQUEST = (400, 401, 403, 503)


def _responses(good: dict[int, Any], *statuses: int, rule: bool = False) -> dict[int, Any]:
    errors = {**_ERRORS, **(_RULE_ERRORS if rule else {})}
    return responses(good, {status: errors[status] for status in {*_REQUEST, *statuses}}, IdErrorSerializer)


def _name() -> list[Any]:
    return path_parameter(
        "name",
        "The rule's name, escaped twice if it contains characters other than letters, digits, - and _.",
    )


def _if_match() -> list[Any]:
    if spectacular is None:
        return []
    return [
        spectacular.OpenApiParameter(
            "If-Match",
            str,
            location="header",
            description="The `ETag` of the rule version to change. If absent, the change applies to any version.",
        )
    ]


_TAG = {"tags": ["ids"]}

issue = describe(
    operation_id="ids_issue",
    summary="Issue one or more IDs",
    description="Returns as many IDs as requested, or an error. A request repeated after a lost reply receives new "
    "IDs: numbers may have gaps, but never repeat.",
    request=IdRequestSerializer,
    responses=_responses({200: IdsSerializer}, 404, 409, 429, 500),
    parameters=_name(),
    examples=[
        *request_example("three IDs", {"app": "shop", "count": 3}),
        *response_example("three issued", {"ids": ["O261121000042", "O261121000043", "O261121000044"], "count": 3}),
    ],
    **_TAG,
)
monitor = describe(
    operation_id="ids_monitor",
    summary="Show the position of a counter",
    responses=_responses({200: IdPositionSerializer}, 404),
    parameters=[*_name(), AppQuerySerializer],
    examples=response_example("in use", {"counter": 42, "node_offset": 0}),
    **_TAG,
)
counters = describe(
    operation_id="ids_counters",
    summary="List all counters",
    parameters=[CounterQuerySerializer],
    responses=_responses({200: IdCounterSerializer(many=True)}, 404),
    **_TAG,
)
preview = describe(
    operation_id="ids_rule_preview",
    summary="Preview the next IDs without using any numbers",
    description="Returns the IDs of the next reservation, for the rule as saved or with the changes in `draft`.",
    request=IdPreviewSerializer,
    responses=_responses({200: IdPreviewedSerializer}, 404, rule=True),
    parameters=_name(),
    examples=[
        *request_example("a draft", {"app": "shop", "count": 2, "draft": {"source": "S{now:%y%m%d}{counter:06d}"}}),
        *response_example(
            "the next two",
            {
                "ids": ["S261121000042", "S261121000043"],
                "error": "",
                "warnings": [],
                "notes": ["13 characters.", "1,000,000 numbers each day."],
            },
        ),
    ],
    **_TAG,
)
_EXAMPLE = {"name": "order", "source": "O{now:%y%m%d}{counter:06d}", "max_counter": 999_999, "reset_seconds": 86_400}
rules = {
    "list": describe(
        operation_id="ids_rules", summary="List all rules", responses=_responses({200: IdRuleSerializer}, 404), **_TAG
    ),
    "create": describe(
        operation_id="ids_rule_create",
        summary="Create a rule",
        responses=_responses({201: IdRuleSerializer}, rule=True),
        examples=request_example("daily order numbers", _EXAMPLE),
        **_TAG,
    ),
    "retrieve": describe(
        operation_id="ids_rule",
        summary="Show a rule",
        responses=_responses({200: IdRuleSerializer}, 404),
        parameters=_name(),
        **_TAG,
    ),
    "update": describe(
        operation_id="ids_rule_replace",
        summary="Replace a rule",
        responses=_responses({200: IdRuleSerializer}, 404, 409, 412, rule=True),
        parameters=[*_name(), *_if_match()],
        examples=request_example("daily order numbers", _EXAMPLE),
        **_TAG,
    ),
    "partial_update": describe(
        operation_id="ids_rule_change",
        summary="Change fields of a rule",
        responses=_responses({200: IdRuleSerializer}, 404, 409, 412, rule=True),
        parameters=[*_name(), *_if_match()],
        examples=request_example("more numbers", {"source": "O{now:%y%m%d}{counter:08d}", "confirm_risks": True}),
        **_TAG,
    ),
    "destroy": describe(
        operation_id="ids_rule_delete",
        summary="Delete a rule and its counters",
        responses=_responses({204: None}, 404, 409, 412, rule=True),
        parameters=[
            *_name(),
            *_if_match(),
            *(
                []
                if spectacular is None
                else [
                    spectacular.OpenApiParameter(
                        "confirm_risks",
                        bool,
                        description="`true`: delete the rule even if it has counters.",
                    )
                ]
            ),
        ],
        **_TAG,
    ),
}
hidden = describe(exclude=True)
