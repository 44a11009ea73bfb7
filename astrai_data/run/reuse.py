"""Whether a task that was finished before can be taken as it is, and if not, why."""

from pathlib import Path

from astrai_data.records import content_hash
from astrai_data.run.task import TaskSpec
from astrai_data.store import finished, read_task

UNFINISHED, CHANGED = "unfinished", "changed"


def obstacle(root: Path, spec: TaskSpec, note: dict | None, backend: str | None = None) -> str | None:
    """None if `data/<task key>/` holds what running the task now would write, else `UNFINISHED` or `CHANGED`.

    The key already speaks for the first and last MiB of each range. Where a file's time or etag has changed, the
    whole range is read again and its hash compared.

    Args:
        root: the store.
        spec: the task.
        note: what was noted when it was finished (`work.done_note`); None: nothing.
        backend: the tokenizer backend of this run, if it is known. Work of the accelerated one is not reused once it
            is distrusted.
    """
    if note is None or not finished(root, spec.key) or (note.get("backend"), backend) == ("fastokens", "tokenizers"):
        return UNFINISHED
    before = note.get("versions", [])
    if len(before) != len(spec.ranges):
        return UNFINISHED
    made_of = read_task(root, spec.key).ranges
    for (file, span), version, made in zip(spec.ranges, before, made_of, strict=True):
        same = bool(version) and version == file.version
        if not same and content_hash(file, span.begin, span.end) != made["xxh3_128"]:
            return CHANGED
    return None
