"""The signals of refusals."""

from __future__ import annotations

from django.dispatch import Signal

request_refused = Signal()
"""A request was refused.

Sent with `sender` (the class of the limiter), `request`, `decision`, `name` (of the limit) and `key` (of the request).
An error in a receiver is logged and does not affect the request.
"""

call_refused = Signal()
"""A call of a limited function or a job was refused.

Sent with `sender` (the class of the limiter), `decision`, `kind` ("function" or "job"), `name` (of the
limit) and `key` (of the call), before `Limited` is raised. An error in a receiver is logged and does not affect the
call.
"""
