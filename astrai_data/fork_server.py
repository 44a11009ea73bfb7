"""The process that all worker processes come from, where the system can fork.

Signals are blocked in it and in what it forks: Ctrl-C and a scheduler's SIGTERM go to all processes, also to those that
are only just starting Python, and it is this process that hears them.
"""

import multiprocessing
import signal
from multiprocessing import forkserver, resource_tracker

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
"""How worker processes start."""


def start_fork_server(module: str) -> None:
    """Start it, with `module` imported once for all workers; nothing where there is none, or if it runs."""
    if METHOD != "forkserver":
        return
    multiprocessing.get_context(METHOD).set_forkserver_preload([module])
    resource_tracker.ensure_running()  # it comes with the fork server, and unblocks signals when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
