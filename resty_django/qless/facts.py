"""What a job is, as the server told it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .call import Steps, twins
from .hooks import Hooks
from .texts import as_list, decode, encode
from .values import JobRecord

if TYPE_CHECKING:
    from .clients import Client
    from .queue import Queue

_UNREAD: Final = object()


class Facts(Hooks):
    """What `Job` has of it."""

    __slots__ = ("_data", "_record", "client")

    def __init__(self, client: Client, record: JobRecord) -> None:
        self.client = client
        self._record = record
        self._data: Any = _UNREAD
        self._hooks = None
        self.state_changed = False

    @property
    def jid(self) -> str:
        return self._record.jid

    @property
    def klass(self) -> str:
        """The name of its class, as it was put."""
        return self._record.klass

    @property
    def queue_name(self) -> str:
        """Empty once it is complete."""
        return self._record.queue

    @property
    def state(self) -> str:
        return self._record.state

    @property
    def worker_name(self) -> str:
        return self._record.worker

    @property
    def data(self) -> Any:
        """What was put, read from JSON when it is first asked for. Raises `UnreadableReply` where it is no JSON."""
        if self._data is _UNREAD:
            self._data = decode(self._record.data)
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = value

    @property
    def raw_data(self) -> str:
        """The data as JSON: the text that was put, as long as nobody has asked for `data`."""
        return self._record.data if self._data is _UNREAD else encode(self._data).decode()

    @property
    def _data_seen(self) -> tuple[str, ...]:
        """What is sent of the data with a call that need not send them: nothing, if nobody has asked for them."""
        return () if self._data is _UNREAD else (self.raw_data,)

    @property
    def tags(self) -> list[str]:
        return [str(each) for each in as_list(self._record.tags)]

    @property
    def priority(self) -> float:
        return self._record.priority

    @priority.setter
    def priority(self, value: float) -> None:
        self.set_priority(value)

    @property
    def original_retries(self) -> int:
        return int(self._record.retries)

    @property
    def retries_left(self) -> int:
        return int(self._record.remaining)

    @property
    def expires_at(self) -> float:
        """When its lock expires, in seconds since the epoch; 0: it has none."""
        return self._record.expires

    @property
    def tracked(self) -> bool:
        return self._record.tracked

    @property
    def dependencies(self) -> list[str]:
        """The jids of the jobs that it waits for."""
        return as_list(self._record.dependencies)

    @property
    def dependents(self) -> list[str]:
        """The jids of the jobs that wait for it."""
        return as_list(self._record.dependents)

    @property
    def spawned_from_jid(self) -> str | None:
        """The jid of the recurring job that made it."""
        return self._record.spawned_from_jid or None  # type: ignore[return-value]

    @property
    def failure(self) -> dict[str, Any]:
        """`group`, `message`, `when` and `worker` of its last failure, or an empty dict."""
        return self._record.failure if isinstance(self._record.failure, dict) else {}

    @property
    def raw_queue_history(self) -> list[dict[str, Any]]:
        """What happened to it, oldest first: each with `when` (seconds since the epoch), `what`, and more."""
        return as_list(self._record.history)

    @property
    def txid(self) -> str | None:
        """The transaction ID of what put it."""
        return self._record.txid

    def queue(self) -> Queue:
        return self.client.queues[self._record.queue]

    def description(self) -> str:
        return f"{self.klass} ({self.jid} / {self.queue_name} / {self.state})"

    def ttl(self) -> float:
        """Seconds until its lock expires; less than 0 where it has."""
        return self._record.expires - self.client.clock()

    def _set_priority(self, value: float) -> Steps[None]:
        """Change the priority; a job that waits goes before all others of the new one. Raises `NoSuchJob`."""
        yield "priority", self.jid, value
        self._record.priority = value

    set_priority, aset_priority = twins(_set_priority)


__all__ = ["Facts"]
