"""The local executor: tasks run here, or in worker processes of this machine.

One worker, or one task, runs inside this process with all cores; several workers share the cores between them. Workers
come from a fork server: this process has tokenizer threads by then, and a forked child would hang on their locks. A
worker that dies takes only its task with it: the task is given once more, to a fresh worker, before the run gives up.
Workers hear no signal but the one that kills: who stops a run stops this process, and it ends them. When it is gone
itself they end at once, so that none of them writes into the store of a later run.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from astrai_data import interrupts
from astrai_data.errors import RunError
from astrai_data.fork_server import METHOD, start_fork_server
from astrai_data.run.task import Job, TaskRunner, TaskSpec

DEATHS_PER_TASK = 2

logger = logging.getLogger("astrai")


def run_local(job: Job, specs: Iterable[TaskSpec], workers: int, done: Callable[[TaskSpec], None]) -> None:
    """Run every task; `done` is called in this process after each.

    Args:
        job: what all tasks share.
        specs: the tasks, in the order in which they start.
        workers: processes at a time, at least 1.
        done: told of each finished task.

    Raises:
        RunError: a worker process died twice on one task.
        AstraiError: whatever a task raised; the other tasks under way are stopped.
    """
    pending = deque(specs)
    workers = min(workers, len(pending))
    if workers > 1:
        _Pool(job, pending, workers, done).run()
    elif pending:
        runner = TaskRunner(job)
        for spec in pending:
            runner.run(spec)
            done(spec)


def prepare_workers(workers: int) -> None:
    """Give this process and the workers it starts `cores // workers` tokenizer threads each.

    Workers come from a process that imports all they need; it begins here, beside what is done before the first task.
    """
    threads = max(1, (os.cpu_count() or 1) // workers)
    for name in ("RAYON_NUM_THREADS", "FASTOKENS_BPE_THREADS"):
        os.environ.setdefault(name, str(threads))
    if workers > 1:
        start_fork_server(__name__)


class _Pool:
    """Worker processes, each with a pipe, each working on one task at a time."""

    def __init__(self, job: Job, pending: deque[TaskSpec], workers: int, done: Callable[[TaskSpec], None]) -> None:
        self._context = multiprocessing.get_context(METHOD)
        self._job, self._pending, self._done = job, pending, done
        self._workers = workers
        self._deaths: dict[str, int] = {}
        self._busy: dict[Connection, tuple[multiprocessing.Process, TaskSpec]] = {}

    def run(self) -> None:
        """Do all tasks; whatever ends it, no worker is left."""
        try:
            while self._pending and len(self._busy) < self._workers:
                self._start()
            while self._busy:
                interrupts.check()
                for connection in wait(list(self._busy)):
                    self._hear(connection)
        finally:
            self._stop()

    def _stop(self) -> None:
        """End who is still busy; a task may be broken off anywhere."""
        for process, _ in self._busy.values():
            process.kill()
        for process, _ in self._busy.values():
            process.join()

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self._give(ours, process, self._job)

    def _give(self, connection: Connection, process: multiprocessing.Process, *before: Job) -> None:
        """Send the next task, after what comes `before` it."""
        spec = self._pending.popleft() if self._pending else None
        if spec is not None:
            self._busy[connection] = (process, spec)
        with suppress(ConnectionError):  # it died before its first task; waiting for its answer will tell
            for message in (*before, spec):
                connection.send(message)
        if spec is None:
            process.join()

    def _hear(self, connection: Connection) -> None:
        process, spec = self._busy[connection]
        try:
            error = connection.recv()
        except (EOFError, ConnectionError):
            del self._busy[connection]
            self._died(process, spec)
            return
        if error is not None:
            raise error
        self._done(spec)
        del self._busy[connection]
        self._give(connection, process)

    def _died(self, process: multiprocessing.Process, spec: TaskSpec) -> None:
        process.join()
        self._deaths[spec.key] = self._deaths.get(spec.key, 0) + 1
        where = ", ".join(f"{file.name} [{span.begin}, {span.end})" for file, span in spec.ranges[:3])
        if self._deaths[spec.key] == DEATHS_PER_TASK:
            raise RunError(
                "a worker process died twice on the same task",
                where=where,
                got=_death(process.exitcode),
                wanted="a worker that finishes",
                hint="run the same command again with fewer workers; finished tasks are kept",
            )
        logger.warning("a worker process died (%s); its task is given once more: %s", _death(process.exitcode), where)
        self._pending.appendleft(spec)
        self._start()


def _death(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    return "killed: out of memory?" if exit_code == -signal.SIGKILL else f"signal {-exit_code}"


def _work(connection: Connection) -> None:
    """A worker's life: hear the job, take a task, do it, answer None or the error; end at None or if nobody listens."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        runner = TaskRunner(_heard_job(connection))
        while (spec := connection.recv()) is not None:
            runner.run(spec)
            connection.send(None)
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        connection.send(error)


def _heard_job(connection: Connection) -> Job:
    """The job. It is no argument of the process: it is large, and a run that is stopped may break off in its middle.

    Raises:
        EOFError: it broke off; `recv` says OSError in the middle of a message.
    """
    try:
        return connection.recv()
    except OSError as error:
        raise EOFError from error


def _end_with_parent() -> None:
    """End this worker as soon as the process that started it is gone, whatever the worker is doing."""
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
