"""An adapter for requests that sends the current txid and trace.

    session = requests.Session()
    session.mount("https://stock.example.com/", TxidAdapter())

A session uses the adapter with the longest matching URL prefix, so other hosts do not receive the headers, even after a
redirect.
"""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from .outgoing import add_headers


class TxidAdapter(HTTPAdapter):
    """An adapter that adds the headers to each request. Takes the arguments of `HTTPAdapter`."""

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        # Copy the request: the session builds redirects from the original object.
        request = request.copy()
        add_headers(request)
        return super().send(request, *args, **kwargs)
