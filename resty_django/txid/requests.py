"""The txid and the trace of now, for calls with requests.

    session = requests.Session()
    session.mount("https://stock.example.com/", TxidAdapter())

A session asks the adapter with the longest prefix of the address, so other hosts are told nothing, also after a
redirect.
"""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from .outgoing import add_headers


class TxidAdapter(HTTPAdapter):
    """An adapter that adds the headers to each request; takes the arguments of `HTTPAdapter`."""

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        # A copy: a redirect is made of the request that the session keeps.
        request = request.copy()
        add_headers(request)
        return super().send(request, *args, **kwargs)
