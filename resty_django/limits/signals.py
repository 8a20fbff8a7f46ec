"""The signal of a refused request."""

from __future__ import annotations

from django.dispatch import Signal

request_refused = Signal()
"""A request was refused.

Sent with `sender` (the class of the limiter), `request`, `decision`, `name` (of the limit) and `key` (of the request).
An error in a receiver is logged and does not affect the request.
"""
