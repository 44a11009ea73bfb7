"""The lock of a store under work: `.work/lock.json`.

Renewed every 15 s, expired after 60 s without renewal, broken at once when its process is dead on the same boot. A
lock is created with a hard link, so that of two runs that start together exactly one gets it. Whether a process of
this machine lives is asked of the system and never of the clock, which may be set by hours at any moment.
"""

import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from astrai_data.errors import RunError
from astrai_data.run.processes import boot_id, is_running, process_start

RENEW_S = 15.0
EXPIRE_S = 60.0


class Lease:
    """Holds the lock of one store while a `with` block runs.

    Raises:
        RunError: another live run holds it.
    """

    def __init__(self, root: Path, *, executor: str, config_hash: str, plan_hash: str) -> None:
        self._path = _lock_path(root)
        self._nonce = uuid.uuid4().hex
        self._draft = self._path.with_name(f"lock-{self._nonce}.json")
        self._content = {
            "config_hash": config_hash,
            "plan_hash": plan_hash,
            "executor": executor,
            "host": socket.gethostname(),
            "boot_id": boot_id(),
            "pid": os.getpid(),
            "pid_start": process_start(os.getpid()),
            "nonce": self._nonce,
        }
        self._stop = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> "Lease":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while not self._create():
            self._break_if_dead()
        self._renewer.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._renewer.join()
        if self._is_ours():
            self._path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise `RunError` if the lock is no longer ours: whoever slept for a minute must not go on writing."""
        if not self._path.exists():
            raise RunError(
                "the output folder was moved or emptied while this run worked in it",
                where=self._path,
                got="no lock any more",
                wanted="the lock of this run",
                hint="run the same command again, with -o where the folder is now: finished work in it is kept",
            )
        if not self._is_ours():
            raise RunError(
                "another run took this store over while this one was not heard of",
                where=self._path,
                got=_told(read_lock(self._path) or {}),
                wanted="the lock of this run",
                hint="let the other run finish, or stop it; then run the same command again: finished work is kept",
            )

    def _write(self) -> None:
        self._draft.write_text(json.dumps(self._content | {"renewed_unix_s": time.time()}, sort_keys=True))

    def _create(self) -> bool:
        try:
            self._write()
            os.link(self._draft, self._path)
        except (FileExistsError, FileNotFoundError):  # there is a lock, or its holder has just cleared up
            return False
        finally:
            self._draft.unlink(missing_ok=True)
        return True

    def _break_if_dead(self) -> None:
        """Take away a dead run's lock. One run at a time looks and deletes, or it might delete a live lock."""
        with _alone_in(self._path.parent):
            try:
                lock = _parsed(self._path.read_text(errors="replace"))
            except FileNotFoundError:
                return
            if lock is None or not is_alive(lock):
                self._path.unlink(missing_ok=True)
                return
        raise RunError(
            "another run is working on this store",
            where=self._path,
            got=_told(lock),
            wanted="no other run",
            hint="wait for it or stop it; a lock whose process is gone is broken by itself",
        )

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_S):
            with suppress(OSError):  # a full disk; the next time may do
                if self._is_ours():
                    self._write()
                    self._draft.replace(self._path)

    def _is_ours(self) -> bool:
        lock = read_lock(self._path)
        return lock is not None and lock.get("nonce") == self._nonce


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep every other run out of the block; the system lets go when a process dies."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def has_dead_lock(root: Path) -> bool:
    """Whether a run that was killed left its lock at the store."""
    path = _lock_path(root)
    lock = read_lock(path)
    return not is_alive(lock) if lock is not None else path.exists()


def _lock_path(root: Path) -> Path:
    return root / ".work" / "lock.json"


def read_lock(path: Path) -> dict | None:
    """The lock at `path`; None if there is none or it is not one."""
    try:
        return _parsed(path.read_text(errors="replace"))
    except FileNotFoundError:
        return None


def _parsed(text: str) -> dict | None:
    try:
        lock = json.loads(text)
    except ValueError:
        return None
    return lock if isinstance(lock, dict) else None


def is_alive(lock: dict) -> bool:
    """Whether the run that wrote `lock` may still be working."""
    try:
        if lock.get("host") == socket.gethostname() and lock.get("boot_id") == boot_id():
            return is_running(int(lock["pid"]), float(lock["pid_start"]))
        return abs(time.time() - float(lock.get("renewed_unix_s", 0))) < EXPIRE_S
    except (KeyError, TypeError, ValueError):
        return False


def _told(lock: dict) -> str:
    try:
        ago = f"{max(0.0, time.time() - float(lock['renewed_unix_s'])):.0f} s ago"
    except (KeyError, TypeError, ValueError):
        ago = "at an unknown time"
    return f"process {lock.get('pid')} on {lock.get('host')}, renewed {ago}"
