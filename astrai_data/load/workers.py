"""Worker processes that read batches ahead, each through a pipe of its own.

With n workers, worker w reads batches w, w + n, w + 2 n, ... and the pipes are read in turn: the order of delivery is
that of the stream, and there is neither a queue nor a lock that a killed worker could leave behind. A closed pipe is
how either side learns that the other is gone. A batch travels as bytes, 24 a token: at 1M tokens/s that is 24 MB/s,
and it needs no shared memory, which containers often have 64 MB of. Workers come from a fork server (where there is
none, they are spawned) and import no torch.
"""

import multiprocessing
import pickle
import queue
import signal
import threading
import traceback
import weakref
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection

import numpy as np

from astrai_data.errors import AstraiError
from astrai_data.fork_server import METHOD, start_fork_server
from astrai_data.load.batch import Batch
from astrai_data.load.errors import LoadError
from astrai_data.load.schedule import Cursor
from astrai_data.load.stream import BatchStream


class Workers:
    """An endless iterator over the batches of `stream` from `cursor` on, read by `number` processes.

    Args:
        stream: pickled to every worker.
        cursor: where to begin.
        number: processes, at least 1.
        prefetch: batches each worker holds ready, at least 1.

    Raises (on iteration):
        AstraiError: what a worker raised.
        LoadError: a worker ended, or raised anything else.
    """

    def __init__(self, stream: BatchStream, cursor: Cursor, number: int, prefetch: int) -> None:
        self._processes: list[multiprocessing.Process] = []
        self._pipes: list[Connection] = []
        self._turn = count()
        self.close = weakref.finalize(self, _stop, self._processes, self._pipes)
        self.close.atexit = False  # daemons end with this process; a forked copy of it must not end them
        context = multiprocessing.get_context(METHOD)
        start_fork_server(__name__)
        address = pickle.dumps(stream)
        for worker in range(number):
            reader, writer = context.Pipe(duplex=False)
            arguments = (address, cursor, worker, number, prefetch, writer)
            process = context.Process(target=work, args=arguments, name=f"loader-{worker}", daemon=True)
            self._pipes.append(reader)
            process.start()
            self._processes.append(process)
            writer.close()  # the worker's is then the only one, and its end is our end of file

    def __iter__(self):
        return self

    def __next__(self) -> Batch:
        worker = next(self._turn) % len(self._pipes)
        try:
            return _receive(self._pipes[worker])
        except (EOFError, OSError) as error:
            raise self._death(worker) from error

    def _death(self, worker: int) -> LoadError:
        process = self._processes[worker]
        process.join(5)
        code = process.exitcode
        killed = f"killed by {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
        return LoadError(
            "a loader worker ended before its time",
            where=f"worker {worker} (process {process.pid})",
            got=killed,
            wanted="a batch",
            hint="SIGKILL mostly means that memory ran out: use fewer workers or smaller batches; at the start, that "
            "the script lacks `if __name__ == '__main__':`. Iterating again goes on after the last batch",
        )


def _stop(processes: list, pipes: list[Connection]) -> None:
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _receive(pipe: Connection) -> Batch:
    """One batch: a header, then the bytes of its data."""
    message = pipe.recv()
    if isinstance(message, Exception):
        raise message
    size, num_tokens, max_seqlen = message
    data = np.empty(size, np.int64)
    pipe.recv_bytes_into(data)
    return Batch(data, num_tokens, max_seqlen)


def _send(pipe: Connection, message: Batch | Exception) -> None:
    if isinstance(message, Exception):
        pipe.send(message)
        return
    pipe.send((len(message.data), message.num_tokens, message.max_seqlen))
    pipe.send_bytes(message.data)


def work(address: bytes, cursor: Cursor, worker: int, number: int, prefetch: int, pipe: Connection) -> None:
    """What a worker process does with a pickled stream until the other end of its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipe
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    ready: queue.Queue[Batch | Exception] = queue.Queue(prefetch)
    threading.Thread(target=_read_ahead, args=(address, cursor, worker, number, ready), daemon=True).start()
    with suppress(BrokenPipeError, ConnectionResetError):
        while True:
            _send(pipe, message := ready.get())
            if isinstance(message, Exception):
                return


def _read_ahead(address: bytes, cursor: Cursor, worker: int, number: int, ready: queue.Queue) -> None:
    try:
        stream: BatchStream = pickle.loads(address)  # opens the store, which may fail like any reading
        for batch in stream.batches(cursor, worker, number):
            ready.put(batch)
    except AstraiError as error:
        ready.put(error)
    except Exception:
        trace = traceback.format_exc()
        hint = "this is a defect of AstrAI; please report it with this text. workers=0 reads without workers"
        where, wanted = f"worker {worker}", "a batch"
        ready.put(LoadError("a loader worker failed", where=where, got=trace, wanted=wanted, hint=hint))
