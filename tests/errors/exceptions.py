"""Sites that no row comes to, and why."""

DISKS, KILLS = "tests/data/test_disks.py", "tests/data/test_kills.py"
CLOSED = "tests/train/test_closed_folders.py"

NOT_REACHED = {
    "astrai_data/records/patterns.py: an input folder cannot be read": f"needs a user who is bound: {DISKS}",
    "astrai_data/records/listing.py: an input cannot be listed": "needs a storage that stops to answer",
    "astrai_data/records/opening.py: an input file cannot be read": "needs a disk that fails while it is read",
    "astrai_data/run/executor.py: a worker process died twice on the same task": f"kills processes: {KILLS}",
    "astrai_data/load/workers.py: a loader worker failed": "a defect of ours, told with its traceback",
    "astrai_data/store/verify_files.py: a file of the store cannot be read": "never raised: a finding takes its words",
    "astrai_train/checkpoint/marker.py: a file of the checkpoint cannot be read": f"needs a bound user: {CLOSED}",
    "astrai_train/device.py: the device does not compute in this dtype": "needs a device that lacks a dtype",
    "astrai_serve/api/refusals.py: this is no HTTP request": "needs bytes on a socket: tests/serve/test_malformed.py",
    "astrai_serve/cli.py: a package is missing that the server needs": "needs a Python without the extra `serve`",
}
