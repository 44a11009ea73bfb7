"""Run a command and end it when standard input ends, that is, when whoever started this dies.

A script of its own, without torch: `python -I -S supervise.py NICENESS COMMAND...`. Ninja ends its compilers when it is
told to terminate, so one signal ends all.
"""

import os
import subprocess
import sys
import threading

GRACE_S = 5


def _end_with_input(child: subprocess.Popen) -> None:
    while os.read(0, 1):  # not sys.stdin: its lock must be free when the interpreter ends
        pass
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()


def main() -> int:
    """Exit as the command does."""
    os.nice(int(sys.argv[1]))
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_input, args=(child,), daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
