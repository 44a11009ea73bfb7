"""Processes of this machine, told apart by what no clock can change.

The start of a process as psutil tells it is counted from the clock, and moves with it: on Linux it is taken from the
kernel's own count of ticks since the boot.
"""

import os
from pathlib import Path

import psutil


def process_start(pid: int) -> float | None:
    """When a process began: ticks since the boot (Linux) or seconds (elsewhere); None if it is not to be seen."""
    fields = _stat(pid)
    if fields is not None:
        return float(fields[19])
    try:
        return None if Path("/proc/self/stat").exists() else psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def is_running(pid: int, start: float) -> bool:
    """Whether the process `pid` that began at `start` (`process_start`) still runs.

    A zombie does not: in a container nobody may ever reap it. One that lives and is hidden from us counts as running.
    """
    if not psutil.pid_exists(pid):
        return False
    fields, found = _stat(pid), process_start(pid)
    dead = fields is not None and fields[0] in ("Z", "X")
    return not dead and (found is None or abs(found - start) < 1)


def boot_id() -> str:
    """A string that changes when the machine restarts, or where process ids mean something else (containers)."""
    path = Path("/proc/sys/kernel/random/boot_id")
    if not path.exists():
        return str(int(psutil.boot_time()))
    try:
        return f"{path.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return path.read_text().strip()


def _stat(pid: int) -> list[str] | None:
    """The fields of `/proc/<pid>/stat` behind the name: the state first, the start in ticks at 19."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
