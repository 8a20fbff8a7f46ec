"""The workers that the server knows: `client.workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .call import Steps, twins
from .texts import as_list, read, reader
from .values import WorkerCounts, WorkerJobs

if TYPE_CHECKING:
    from .clients import Client

_COUNTS: Final = reader(list[WorkerCounts] | dict[str, int])  # type: ignore[arg-type]


class _Jobs(msgspec.Struct):
    jobs: list[str] | dict[str, str]
    stalled: list[str] | dict[str, str]


_JOBS: Final = reader(_Jobs)


class Workers:
    """`client.workers["name"]` are the jobs of one worker."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def _get(self, name: str) -> Steps[WorkerJobs]:
        """The jobs of a worker, none where it is not known."""
        found = read((yield "workers", name), _JOBS)
        return WorkerJobs(jobs=as_list(found.jobs), stalled=as_list(found.stalled))

    get, aget = twins(_get)

    def __getitem__(self, name: str) -> WorkerJobs:
        return self.get(name)

    def _counts(self) -> Steps[list[WorkerCounts]]:
        """All workers, those seen last first. Forgets those not seen for `max-worker-age` seconds."""
        return as_list(read((yield ("workers",)), _COUNTS))

    counts, acounts = twins(_counts)

    def _deregister(self, *names: str) -> Steps[None]:
        """Take workers off the list; their jobs stay theirs until the locks expire."""
        yield from self.client._deregister_workers(names)

    deregister, aderegister = twins(_deregister)


__all__ = ["Workers"]
