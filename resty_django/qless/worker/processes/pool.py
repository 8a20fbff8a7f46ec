"""The executor of the pool "processes": one process for each job that runs, and a thread that waits for it."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from resty_django.text import logger

from ...clients.worker_reports import Frame
from ...errors import LostLock
from ...outcomes import JobTimeout, ProcessDied, Stopping
from .. import execution
from ..commands import EndCommand
from ..executor import Pool
from ..reports.stacks import StackFile, of_dump
from ..running_job import Inbox, RunningJob
from .fork_server import ForkServer
from .pipe import JobPipe, LimitRun, RunEnded, StartRun
from .slot_memory import SlotMemory

log = logger("resty_django.qless.worker")

CLOSE_SECONDS: Final = 2.0
"""Time that idle processes have to end before they are killed."""


class ProcessSlot:
    """A place for one job at a time, and its process, which is replaced when it dies. Used by one thread.

    Other threads call only `on_exit` and `on_gone`, and with the pool's lock `interrupt` and `kill`.
    """

    def __init__(self, index: int, fork_server: ForkServer, memory: mmap.mmap) -> None:
        self.memory = SlotMemory(memory, index)
        self.run_number = 0
        self._index = index
        self._fork_server = fork_server
        self._pipe: JobPipe | None = None
        self._stack_file: StackFile | None = None
        """The file to which the process writes its stack, opened with the first process."""
        self._doomed = False
        """Whether the process has been killed and must not get another job."""
        self._retiring = False
        """Whether the process ends without being killed once its job has ended."""
        self._exited = threading.Event()
        self._exit: tuple[int, int] | None = None
        """The pid and the exit code of the last process; None: unknown, since the fork server is dead."""

    def begin(self) -> None:
        """Start a new run."""
        self.run_number += 1
        self._doomed = self._retiring = False

    def run(self, running: RunningJob) -> RunEnded | None:
        """Run the job in the slot's process. Return how it ended; None if the process died."""
        message = StartRun(self.run_number, running.queue, msgspec.to_builtins(running.job._record))
        reply = self._attempt(running, message)
        if reply is None and not self._doomed and not self.memory.started(self.run_number):
            reply = self._attempt(running, message)  # the process died while it was idle
        return reply

    def _attempt(self, running: RunningJob, message: StartRun) -> RunEnded | None:
        if not self._sent(message):
            self._discard()
            self._exited.clear()
            try:
                self._stack_file = self._stack_file or StackFile()
                self._pipe = JobPipe(self._fork_server.fork(self._index, self._stack_file.descriptor))
            except (BrokenPipeError, ConnectionResetError):  # the fork server is dead
                self.on_gone()
            except OSError as error:
                self.on_exit(0, error.errno or 0)
            if self._exited.is_set() or not self._sent(message):
                return None
            if self._doomed:  # `kill` may have come before the process
                self._fork_server.kill(self._index)
        while self._pipe is not None and (reply := self._pipe.receive()) is not None:
            if isinstance(reply, RunEnded):
                self._retiring = reply.retiring
                return reply
            if isinstance(reply, LimitRun):
                running.job.limit(reply.seconds, reply.kill_after)
        return None

    def release(self) -> None:
        """Keep the process for the next job, unless it has been killed or is ending."""
        if self._retiring:
            self.close()
        elif self._doomed:
            self._discard()

    def death(self) -> Exception | None:
        """Wait for the exit of the process, whose connection is closed. Return why it died; None if unknown."""
        self._discard()
        if self._exit is None:
            return None
        pid, code = self._exit
        if not pid:
            return ProcessDied(f"No process could be started for the job: {os.strerror(code)}.")
        if code >= 0:
            return ProcessDied(f"The process of the job ({pid}) ended with exit code {code} before the job had ended.")
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " Perhaps the machine ran out of memory." if -code == signal.SIGKILL else ""
        return ProcessDied(f"The process of the job ({pid}) was killed by {name}.{hint}")

    def close(self) -> None:
        """End the idle process."""
        if self._pipe is not None:
            self._pipe.shut_down()
            self._exited.wait(CLOSE_SECONDS)
            self._discard()

    def interrupt(self, cause: Exception, *, raises: bool) -> None:
        self.memory.interrupt(self.run_number, cause, raises=raises)
        if raises:
            self._fork_server.interrupt(self._index)

    def kill(self) -> None:
        self._doomed = True
        self._fork_server.kill(self._index)

    def ask_for_stack(self) -> None:
        """Let the process write its stack, which `stack_text` returns then."""
        if self._stack_file is not None:
            self._stack_file.clear()
            self._fork_server.dump_stack(self._index)

    def stack_text(self) -> str:
        return "" if self._stack_file is None else self._stack_file.text()

    def on_exit(self, pid: int, code: int) -> None:
        """Record the exit of the process. Processes that it has forked may still hold its end of the connection."""
        self._exit = (pid, code)
        self._exited.set()
        if self._pipe is not None:
            self._pipe.shut_down()

    def on_gone(self) -> None:
        """Record that the fork server is dead, and the process with it."""
        self._exit = None
        self._exited.set()
        if self._pipe is not None:
            self._pipe.shut_down()

    def _sent(self, message: StartRun) -> bool:
        if self._pipe is None:
            return False
        try:
            self._pipe.send(message)
        except OSError:  # the process has died
            return False
        return True

    def _discard(self) -> None:
        """Make sure that the process is dead."""
        if self._pipe is None:
            return
        if not self._exited.is_set():
            self._fork_server.kill(self._index)
            self._exited.wait()
        self._pipe.close()
        self._pipe = None


class JobProcessPool(Pool):
    """Runs jobs in up to `slots` processes, which are started on demand and reused. Call `listen` first."""

    can_kill = True

    def __init__(
        self, inbox: Inbox, *, fork_server: ForkServer, memory: mmap.mmap, slots: int, kill_after: float
    ) -> None:
        super().__init__(inbox)
        self.kill_after = kill_after
        self._slots = [ProcessSlot(index, fork_server, memory) for index in range(slots)]
        self._free = self._slots[::-1]
        """Slots without a thread."""
        self._limit = slots
        """Number of threads, and so of processes, to keep."""
        self._fork_server = fork_server
        self._changing = threading.Lock()
        self._active: dict[RunningJob, ProcessSlot] = {}
        """The slots of the jobs that run, until their ends arrive."""
        self._workers: list[threading.Thread] = []
        self._closing = False

    def listen(self, on_gone: Callable[[], object]) -> None:
        """Receive the exits of processes. `on_gone` is called if the fork server dies: no process can start then."""

        def gone() -> None:
            for slot in self._slots:
                slot.on_gone()
            if not self._closing:
                log.error("the process that forks the processes of jobs died; this worker process ends")
                on_gone()

        self._fork_server.listen(lambda slot, pid, code: self._slots[slot].on_exit(pid, code), gone)

    def start(self, running: RunningJob) -> None:
        with self._changing:
            self._busy += 1
            self._start_missing_thread()
        self._tasks.put(running)

    def resize(self, slots: int) -> None:
        """Keep at most this number of processes: end others once they are idle."""
        with self._changing:
            self._limit = slots
            for _ in range(len(self._workers) - slots):
                self._tasks.put(None)

    def stacks(self, jobs: Sequence[RunningJob]) -> dict[RunningJob, list[Frame]]:
        """Return the stacks of the jobs' processes. Waits for them, up to 2 seconds."""
        with self._changing:
            slots = {running: self._active[running] for running in jobs if running in self._active}
            for slot in slots.values():
                slot.ask_for_stack()
        texts: dict[RunningJob, str] = {}
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            time.sleep(0.03)  # stacks that have not grown since then are complete
            before, texts = texts, {running: slot.stack_text() for running, slot in slots.items()}
            if before == texts and all(texts.values()):
                break
        return {running: of_dump(text) for running, text in texts.items()}

    def _start_missing_thread(self) -> None:
        if self._busy > len(self._workers) and self._free:
            slot = self._free.pop()
            thread = threading.Thread(target=self._serve_slot, args=(slot,), name="qless-slot", daemon=True)
            self._workers.append(thread)
            thread.start()

    def ended(self, running: RunningJob) -> None:
        with self._changing:
            self._busy -= 1

    def interrupt(self, running: RunningJob, cause: Exception, *, in_thread: bool) -> None:
        """Announce `cause` to the job's process; raise it there if `in_thread`, or if the job is async."""
        with self._changing:
            if running.cause is not None:
                return
            running.cause = cause
            slot = self._active.get(running)
            if slot is not None:
                slot.interrupt(cause, raises=in_thread or running.handler.is_async)

    def kill(self, running: RunningJob) -> None:
        with self._changing:
            slot = self._active.get(running)
            if slot is not None:
                slot.kill()

    def state_changed(self, running: RunningJob) -> bool:
        with self._changing:
            slot = self._active.get(running)
            return slot is not None and slot.memory.state_changed(slot.run_number)

    def close(self) -> None:
        """End all processes. No job runs any more."""
        with self._changing:
            workers = list(self._workers)
        self.resize(0)
        until = time.monotonic() + 2 * CLOSE_SECONDS
        for thread in workers:
            thread.join(max(0.0, until - time.monotonic()))
        self._closing = True
        self._fork_server.stop()

    # --- in the thread of a slot ---

    def _serve_slot(self, slot: ProcessSlot) -> None:
        while True:
            running = self._tasks.get()
            if running is None:
                if self._is_superfluous():
                    break
                continue
            try:
                self._run_in(slot, running)
            except BaseException as error:
                log.exception("job %s could not be run in a process", running.jid)
                execution.fail_with(running, error)
            self.inbox.put(running)
            running = None
            slot.release()
        slot.close()
        with self._changing:
            self._free.append(slot)
            self._start_missing_thread()

    def _is_superfluous(self) -> bool:
        """Return whether this thread is to end; it no longer counts then."""
        with self._changing:
            if len(self._workers) <= self._limit:
                return False
            self._workers.remove(threading.current_thread())
            return True

    def _run_in(self, slot: ProcessSlot, running: RunningJob) -> None:
        if not self._connect(slot, running):
            return
        reply = None
        try:
            reply = slot.run(running)
        finally:
            with self._changing:
                changed = slot.memory.state_changed(slot.run_number)
                del self._active[running]
        running.job.state_changed = changed
        if reply is None:
            self._bury(running, slot.death())
            return
        if isinstance(running.cause, LostLock):
            running.set_end("lost")
        elif reply.end is not None:
            running.set_end(reply.end, None if reply.command is None else EndCommand.unpack(reply.command))

    def _connect(self, slot: ProcessSlot, running: RunningJob) -> bool:
        """Connect the job with the slot. Return False if the job was interrupted before it started."""
        with self._changing:
            if running.cause is not None:
                execution.finish(running, running.cause)
                return False
            slot.begin()
            self._active[running] = slot
            return True

    def _bury(self, running: RunningJob, death: Exception | None) -> None:
        """Set the end of a job whose process is dead."""
        cause = running.cause
        if isinstance(cause, LostLock | Stopping) or running.job.state_changed:
            execution.finish(running, cause or death)
        elif death is None and not isinstance(cause, JobTimeout):
            running.set_end("returned")  # the worker ends, and returns it to its queue
        else:
            execution.finish_dead(running, cause or death or ProcessDied("The process of the job died."))
