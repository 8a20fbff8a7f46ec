"""The ways to put a task: at once, on commit, later as a signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from . import sending
from .canvas import Signature
from .results import AsyncResult

if TYPE_CHECKING:
    from .task import Task

P = ParamSpec("P")
R = TypeVar("R")


class Putting(Generic[P, R]):
    """What `Task` has of it."""

    @property
    def _me(self) -> Task[..., Any]:
        return cast("Task[..., Any]", self)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Put a job that calls the function with these arguments; gives its outcome to be.

        Raises `TypeError` where the function does not take them, `InvalidArgument` where they are no JSON.
        """
        return self.apply_async(args, kwargs)

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """The same for asyncio."""
        return await self.aapply_async(args, kwargs)

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Put it when the transaction under way is committed, and never if it is rolled back; its ID is known now."""
        return self.apply_async_on_commit(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult[R]:
        """As `delay`, with options: those of `message`."""
        client = sending.client()
        message = self._me.message(args, kwargs or {}, client=client, **options)
        sending.send([(self._me, message)], client)
        return AsyncResult(message.jid, client=client)

    async def aapply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult[R]:
        """The same for asyncio."""
        client = sending.client()
        message = self._me.message(args, kwargs or {}, client=client, **options)
        await sending.asend([(self._me, message)], client)
        return AsyncResult(message.jid, client=client)

    def apply_async_on_commit(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        using: str | None = None,
        robust: bool = False,
        **options: Any,
    ) -> AsyncResult[R]:
        """As `delay_on_commit`, with options. `using`: the database whose transaction it is; `robust`: where the job
        cannot be put then, that is logged and not raised."""
        client = sending.client()
        message = self._me.message(args, kwargs or {}, client=client, **options)
        sending.send_on_commit([(self._me, message)], client, using, robust)
        return AsyncResult(message.jid, client=client)

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """To be put later, in a chain or group; there it gets the result of the step before as its first argument."""
        return Signature(self._me, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """The same, but it gets no result."""
        return Signature(self._me, args, kwargs, immutable=True)

    def signature(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Any,
    ) -> Signature:
        """The same with options of `apply_async`."""
        return Signature(self._me, tuple(args), kwargs or {}, options, immutable)


__all__ = ["Putting"]
