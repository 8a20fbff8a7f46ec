"""Stacks of running jobs: of threads, tasks on an event loop, and processes. They contain no values of variables."""

from __future__ import annotations

import asyncio
import itertools
import linecache
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from ...clients.serialization import readable
from ...clients.worker_reports import Frame, JobStack, WorkerStacks

MAX_FRAMES: Final = 60
"""Maximum number of frames of a stack: the innermost ones."""
MAX_ANSWER_BYTES: Final = 262_144
"""Maximum length of an answer, which the core enforces."""
STACKS_EXPIRE_SECONDS: Final = 60.0
"""Time after which a request for stacks is ignored: nobody waits for the answer any more."""
_MARK, _END = "Task (most recent call first):\n", "End of task\n"


class StackFile:
    """An open file without a name, to which another process writes its stack."""

    max_bytes = 100_000
    """Maximum length of the text that is read."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self.descriptor = os.dup(file.fileno())

    def clear(self) -> None:
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)  # also for the other process, which shares the position

    def text(self) -> str:
        return os.pread(self.descriptor, self.max_bytes, 0).decode("utf-8", "replace")


def of_thread(thread: int) -> list[Frame]:
    """Return the stack of a thread of this process, outermost frame first; empty if it has ended."""
    frame = sys._current_frames().get(thread)
    return [] if frame is None else _frames(traceback.walk_stack(frame))


def of_task(task: asyncio.Task[Any] | None, loop_thread: int) -> list[Frame]:
    """Return the stack of a task: of the loop's thread if the task runs now, else of what the task awaits."""
    if task is None or task.done():
        return []
    awaited = list(_awaited(task.get_coro()))
    running = sys._current_frames().get(loop_thread)
    if awaited and running is not None:
        stack = list(traceback.walk_stack(running))
        if any(frame is awaited[0][0] for frame, _ in stack):
            return _frames(stack)
    return _frames(reversed(awaited))


def of_dump(text: str) -> list[Frame]:
    """Return the stack that `faulthandler`, and after it perhaps `dump_of`, have written, outermost frame first."""
    line = r'^\s*File "(?P<path>.*)", line (?P<line>\d+) in (?P<function>.*)$'
    matches = re.finditer(line, text.rpartition(_MARK)[2], re.MULTILINE)
    innermost = list(itertools.islice(matches, MAX_FRAMES))
    return [_frame(match["path"], int(match["line"][:9]), match["function"]) for match in reversed(innermost)]


def of_blocked_worker(text: str) -> list[JobStack]:
    """Return the stacks of the threads that run jobs, from the stacks of all threads that `faulthandler` has written.

    The result does not say which job a thread runs. Threads that wait for a job are left out.
    """
    stacks = [of_dump(part) for part in re.split(r"^(?:Current t|T)hread .*$", text, flags=re.MULTILINE)]
    return [JobStack(jid="", klass="", seconds=0.0, frames=frames) for frames in stacks if _runs_jobs(frames)]


def _runs_jobs(frames: Sequence[Frame]) -> bool:
    executor = str(Path(__file__).parents[1] / "executor.py")
    starts = [n for n, frame in enumerate(frames) if frame.path == executor and frame.function in ("_work", "_serve")]
    return bool(starts) and starts[0] < len(frames) - 1 and frames[-1].function != "select"


def dump_of(frames: Sequence[Frame]) -> bytes:
    """Return a stack as `of_dump` reads it, after a mark: what is before the mark does not count."""
    lines = [f'  File "{frame.path}", line {frame.line} in {frame.function}\n' for frame in reversed(frames)]
    return "".join((_MARK, *lines, _END)).encode("utf-8", "backslashreplace")


def encode_stacks(request: int, at: float, stacks: Sequence[JobStack]) -> bytes:
    """Return the answer to a request, at most `MAX_ANSWER_BYTES` bytes long: stacks that do not fit are left out."""
    jobs, size = [], 1000
    for stack in stacks[:50]:
        size += len(msgspec.json.encode(stack)) + 1
        if size > MAX_ANSWER_BYTES:
            break
        jobs.append(stack)
    return msgspec.json.encode(WorkerStacks(id=request, at=at, jobs=jobs, left_out=len(stacks) - len(jobs)))


def _awaited(awaitable: object) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a coroutine and of the coroutines and generators that it awaits, outermost first."""
    for _ in range(1000):
        frame = _attribute(awaitable, "cr_frame", "ag_frame", "gi_frame")
        if frame is None:
            return
        yield frame, frame.f_lineno or 0
        awaitable = _attribute(awaitable, "cr_await", "ag_await", "gi_yieldfrom")


def _attribute(awaitable: object, *names: str) -> Any:
    """Return the first of these attributes that is set, of a coroutine, an async generator or a generator."""
    return next((value for name in names if (value := getattr(awaitable, name, None)) is not None), None)


def _frames(inward: Iterable[tuple[FrameType, int]]) -> list[Frame]:
    """Return frames, given innermost first, outermost first."""
    innermost = list(itertools.islice(inward, MAX_FRAMES))
    return [_frame(frame.f_code.co_filename, line, frame.f_code.co_qualname) for frame, line in reversed(innermost)]


def _frame(path: str, line: int, function: str) -> Frame:
    try:
        source = linecache.getline(readable(path, 500), line).strip()
    except Exception:  # the file cannot be read
        source = ""
    return Frame(readable(path, 500), line, readable(function, 200), readable(source, 200))
