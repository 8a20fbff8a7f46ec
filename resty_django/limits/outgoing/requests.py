"""An adapter for requests that obeys a limit, and the pauses that services ask for.

    session = requests.Session()
    session.mount("https://api.example.org/", LimitedAdapter("10/s", wait=30))

`resty_django` does not depend on requests; import this module only if it is installed.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from resty_django.sansio import Step, run

from ..enforcement.chosen_rates import Rate
from .calls import OutgoingLimit


class LimitedAdapter(HTTPAdapter):
    """Sends requests when it is their turn. `rate` and the keyword arguments: see `OutgoingLimit`.

    A request raises `Limited` if it would have to wait for too long.
    """

    __attrs__ = [*HTTPAdapter.__attrs__, "limit"]

    def __init__(self, rate: Rate, **options: Any) -> None:
        super().__init__()
        self.limit = OutgoingLimit(rate, **options)

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        def transmit() -> Response:
            return super(LimitedAdapter, self).send(request, *args, **kwargs)

        key = self.limit.key(request, urlsplit(request.url or "").hostname or "")
        repeatable = request.body is None or isinstance(request.body, str | bytes)
        return run(self.limit.sending(key, Step(transmit, _not_async), repeatable, _close))  # type: ignore[no-any-return]


def _close(response: Response) -> Step:
    return Step(response.close, _not_async)


async def _not_async(*args: Any) -> Any:
    raise AssertionError("requests runs no async steps.")
