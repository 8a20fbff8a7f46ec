"""From messages to jobs: at once, on commit, or, where EAGER is set, to their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db import transaction

from resty_django.conf import conf

from . import eager
from .clients import Client
from .default import default_client
from .message import Message

if TYPE_CHECKING:
    from .task import Task

Planned = tuple["Task[..., Any]", Message]


def client() -> Client:
    """The one that tasks use."""
    return default_client()


def send(planned: Sequence[Planned], client: Client) -> None:
    """Put the jobs, in one round trip, in their order. Raises what the first one raises that was refused."""
    if conf.qless.eager:
        for task, message in planned:
            eager.run(task, message, client)
    elif len(planned) == 1:
        client.call(*planned[0][1].request(client))
    else:
        _raise_first(client.call_many([message.request(client) for _, message in planned]))


async def asend(planned: Sequence[Planned], client: Client) -> None:
    """The same for asyncio."""
    if conf.qless.eager:
        for task, message in planned:
            await eager.arun(task, message, client)
    elif len(planned) == 1:
        await client.acall(*planned[0][1].request(client))
    else:
        _raise_first(await client.acall_many([message.request(client) for _, message in planned]))


def send_on_commit(planned: Sequence[Planned], client: Client, using: str | None, robust: bool = False) -> None:
    """When the transaction is committed; at once where there is none. After a rollback never."""

    def put() -> None:  # a partial has no name that Django could log
        send(planned, client)

    transaction.on_commit(put, using=using, robust=robust)


def _raise_first(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply


__all__ = ["asend", "client", "send", "send_on_commit"]
