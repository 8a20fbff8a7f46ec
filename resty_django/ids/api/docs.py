"""The descriptions that drf-spectacular makes the OpenAPI schema of; without it, nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

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

spectacular: Any
try:
    from drf_spectacular import utils as spectacular
except ImportError:
    spectacular = None

View = TypeVar("View", bound=Callable[..., Any])
Decorator = Callable[[View], View]

_ERRORS: dict[int, tuple[str, dict[str, dict[str, Any]]]] = {
    400: (
        "The body is not JSON, a field is wrong or missing, or the rule cannot take what it was given.",
        {
            "bad_count": {"message": "count is 5000; it is a whole number from 1 to 1000 (MAX_COUNT)"},
            "bad_request": {
                "message": "The request is not valid: count: A valid integer is required.",
                "details": {"fields": {"count": ["A valid integer is required."]}},
            },
        },
    ),
    401: (
        "Who asks is not known (403 where the site's first way to authenticate has no challenge).",
        {"not_authenticated": {"message": "Authentication credentials were not provided."}},
    ),
    403: (
        "The user lacks the permission.",
        {"permission_denied": {"message": "You do not have permission to perform this action."}},
    ),
    404: ("There is no such rule or counter.", {"unknown_rule": {"message": "no rule 'order'"}}),
    409: (
        "Not in this state: the counter is used up, or the rule gives no IDs over HTTP.",
        {
            "exhausted": {
                "message": "counter order/shop has given out all its numbers up to 999999; it starts again with the "
                "next cycle",
                "details": {"until": 1795305600},
            },
            "needs_transaction": {
                "message": "rule invoice is gapless: ask for its numbers from Python, inside transaction.atomic()"
            },
        },
    ),
    429: (
        "Too fast; see Retry-After.",
        {"rate_limited": {"message": "new application names come faster than 50 a second"}},
    ),
    500: ("The rule itself failed.", {"rule_failed": {"message": "Lua rule order took longer than 50 ms"}}),
    503: (
        "No number is reserved and the database does not answer; see Retry-After.",
        {
            "unavailable": {
                "message": "No number is reserved and the database did not answer in time; try again shortly."
            }
        },
    ),
}
_RULE_ERRORS: dict[int, tuple[str, dict[str, dict[str, Any]]]] = {
    400: (
        "The body is not JSON, a field is wrong or missing, or the rule makes no sense.",
        {
            "bad_rule": {
                "message": "The rule is not valid: source: At character 1 ('{nope}'): {nope} is not a field; a "
                "template knows counter, now, salt, app, rule, node, rand, luhn, damm, mod97",
                "details": {"fields": {"source": ["At character 1 ('{nope}'): ..."]}, "position": 0},
            }
        },
    ),
    409: (
        "The change is risky and was not confirmed.",
        {
            "risks_unconfirmed": {
                "message": "IDs of the past could come again; send it once more with confirm_risks true if that is "
                "wanted.",
                "details": {
                    "risks": ["The text of IDs changes: make sure that no new ID can look like one of the past."]
                },
            }
        },
    ),
}
_REQUEST = (400, 401, 403, 503)


def describe(**arguments: Any) -> Decorator[Any]:
    """`extend_schema`, where drf-spectacular is installed."""
    if spectacular is None:
        return lambda view: view
    made: Decorator[Any] = spectacular.extend_schema(**arguments)
    return made


def describe_all(**methods: Any) -> Decorator[Any]:
    """`extend_schema_view` of decorators made with `describe`, where drf-spectacular is installed."""
    if spectacular is None:
        return lambda view: view
    made: Decorator[Any] = spectacular.extend_schema_view(**methods)
    return made


def _responses(good: dict[int, Any], *statuses: int, rule: bool = False) -> dict[int, Any]:
    if spectacular is None:
        return good
    found: dict[int, Any] = dict(good)
    for status in sorted({*_REQUEST, *statuses}):
        text, examples = (_RULE_ERRORS if rule else {}).get(status, _ERRORS[status])
        found[status] = spectacular.OpenApiResponse(
            IdErrorSerializer,
            description=text,
            examples=[
                spectacular.OpenApiExample(code, value={"code": code, **rest}) for code, rest in examples.items()
            ],
        )
    return found


def _request(name: str, value: dict[str, Any]) -> list[Any]:
    return [] if spectacular is None else [spectacular.OpenApiExample(name, value=value, request_only=True)]


def _response(name: str, value: dict[str, Any]) -> list[Any]:
    return (
        []
        if spectacular is None
        else [spectacular.OpenApiExample(name, value=value, response_only=True, status_codes=["200", "201"])]
    )


def _name() -> list[Any]:
    if spectacular is None:
        return []
    return [
        spectacular.OpenApiParameter(
            "name",
            str,
            spectacular.OpenApiParameter.PATH,
            description="The rule's name, escaped once more than usual where it holds other characters than letters, "
            "digits, - and _.",
        )
    ]


_TAG = {"tags": ["ids"]}

issue = describe(
    operation_id="ids_issue",
    summary="Give out one or many IDs",
    description="All IDs that were asked for, or an error. A request repeated after a lost reply gets other IDs: "
    "numbers may have gaps, they never repeat.",
    request=IdRequestSerializer,
    responses=_responses({200: IdsSerializer}, 404, 409, 429, 500),
    parameters=_name(),
    examples=[
        *_request("three IDs", {"app": "shop", "count": 3}),
        *_response("three given out", {"ids": ["O261121000042", "O261121000043", "O261121000044"], "count": 3}),
    ],
    **_TAG,
)
monitor = describe(
    operation_id="ids_monitor",
    summary="Where one counter stands",
    responses=_responses({200: IdPositionSerializer}, 404),
    parameters=[*_name(), AppQuerySerializer],
    examples=_response("in use", {"counter": 42, "node_offset": 0}),
    **_TAG,
)
counters = describe(
    operation_id="ids_counters",
    summary="All counters",
    parameters=[CounterQuerySerializer],
    responses=_responses({200: IdCounterSerializer(many=True)}, 404),
    **_TAG,
)
preview = describe(
    operation_id="ids_rule_preview",
    summary="The next IDs, without taking them",
    description="What the next reservation would be used for, with the rule as it is or with the changes in `draft`.",
    request=IdPreviewSerializer,
    responses=_responses({200: IdPreviewedSerializer}, 404, rule=True),
    parameters=_name(),
    examples=[
        *_request("a draft", {"app": "shop", "count": 2, "draft": {"source": "S{now:%y%m%d}{counter:06d}"}}),
        *_response(
            "two to come",
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
        operation_id="ids_rules", summary="All rules", responses=_responses({200: IdRuleSerializer}, 404), **_TAG
    ),
    "create": describe(
        operation_id="ids_rule_create",
        summary="Make a rule",
        responses=_responses({201: IdRuleSerializer}, rule=True),
        examples=_request("daily order numbers", _EXAMPLE),
        **_TAG,
    ),
    "retrieve": describe(
        operation_id="ids_rule",
        summary="One rule",
        responses=_responses({200: IdRuleSerializer}, 404),
        parameters=_name(),
        **_TAG,
    ),
    "update": describe(
        operation_id="ids_rule_replace",
        summary="Replace a rule",
        responses=_responses({200: IdRuleSerializer}, 404, 409, rule=True),
        parameters=_name(),
        examples=_request("daily order numbers", _EXAMPLE),
        **_TAG,
    ),
    "partial_update": describe(
        operation_id="ids_rule_change",
        summary="Change fields of a rule",
        responses=_responses({200: IdRuleSerializer}, 404, 409, rule=True),
        parameters=_name(),
        examples=_request("more numbers", {"source": "O{now:%y%m%d}{counter:08d}", "confirm_risks": True}),
        **_TAG,
    ),
    "destroy": describe(
        operation_id="ids_rule_delete",
        summary="Delete a rule and its counters",
        responses=_responses({204: None}, 404, 409, rule=True),
        parameters=[
            *_name(),
            *(
                []
                if spectacular is None
                else [
                    spectacular.OpenApiParameter(
                        "confirm_risks",
                        bool,
                        description="`true`: delete it although it has counters.",
                    )
                ]
            ),
        ],
        **_TAG,
    ),
}
hidden = describe(exclude=True)
