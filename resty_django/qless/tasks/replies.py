"""Results of jobs, fetched in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ..clients.serialization import read
from ..clients.transport import Steps, batches, checked

RESULTS_PER_BATCH: Final = 250
"""Results that one round trip fetches."""


class ResultReply(msgspec.Struct):
    state: str
    result: str | bool
    progress: float | bool = False
    message: str | bool = False
    skipped: bool = False


def result_reply(jid: str) -> Steps[ResultReply | None]:
    """Return the state and the result of a job; None if it does not exist."""
    reply = yield "result", jid
    return None if reply is None else read(reply, ResultReply)


def result_replies(jids: Sequence[str]) -> Steps[list[ResultReply | None]]:
    """Return the same for many jobs, in order."""
    replies: list[ResultReply | None] = []
    for batch in batches(jids, RESULTS_PER_BATCH):
        for reply in (yield [("result", jid) for jid in batch]):
            replies.append(None if checked(reply) is None else read(reply, ResultReply))
    return replies
