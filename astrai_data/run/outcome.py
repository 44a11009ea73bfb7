"""After the last task: whether what was made may become a store.

Not if nothing was kept, nor if more records were rejected than the limits allow. The tasks stay where they are, so
that a run with another limit only has to commit; work in which nothing was kept is in no other run's way
(`occupant.py`). Where conversations were lost because `mask` trains none of their roles, the roles are told.
"""

import io
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import zstandard

from astrai_data.build import UntrainedRoles, untrained_roles
from astrai_data.config import PipelineConfig
from astrai_data.errors import RunError
from astrai_data.ledger import Ledger
from astrai_data.run.plan import RunPlan
from astrai_data.run.sampling import sample_records

logger = logging.getLogger("astrai")

UNTRAINED = "nothing_to_train"
MANY_UNTRAINED = 0.01  # of the records read; from there on the roles of a sample are looked at
NUM_EXAMPLES = 3
EXAMPLE_CHARS = 120


def check_outcome(root: Path, plan: RunPlan, ledger: Ledger) -> None:
    """Raise `RunError` if the run must not commit; it names the three commonest reasons with an example each.

    Warns where many records have nothing to train for a role that nobody has thought of.
    """
    read, rejected = ledger.total("records", "read"), ledger.total("records", "rejected")
    limits = plan.config.run
    if rejected > limits.max_reject_ratio * read and rejected >= limits.min_rejects:
        raise RunError(
            f"too many records were rejected: {rejected:,} of {read:,}",
            where=root,
            got=_reasons(root, plan, ledger),
            wanted=f"at most {limits.max_reject_ratio:.2%} (run.max_reject_ratio), or fewer than {limits.min_rejects}",
            hint="mend the input, or raise run.max_reject_ratio (`astrai schema NAME` prints a ready-made one), and "
            f"run again: no finished work is done twice; all rejects: {root / 'rejects'} (zstd)",
        )
    untrained = ledger.total("records", "filtered", UNTRAINED)
    roles = untrained_roles(plan.config, sample_records(plan)) if untrained > MANY_UNTRAINED * read else None
    if ledger.total("records", "kept") == 0:
        hint = _hint(plan.config, rejected, roles if untrained >= rejected else None)
        raise RunError(
            f"nothing was kept of {read:,} records",
            where=root,
            got=_reasons(root, plan, ledger, roles) or "no records at all: the inputs are empty",
            wanted="at least one document",
            hint=f"{hint}; then run again with the same -o" if read else "name inputs with records in them",
        )
    if roles and roles.has_strange:
        logger.warning(f"{untrained:,} of {read:,} records have nothing to train: {roles.told}; {roles.hint}")


def _reasons(root: Path, plan: RunPlan, ledger: Ledger, roles: UntrainedRoles | None = None) -> str:
    counts: Counter[tuple[str, str]] = Counter()
    for balance, _, what, reason, count in ledger.to_rows():
        if balance == "records" and what in ("rejected", "filtered"):
            counts[what, reason] += count
    lines = []
    for (what, reason), count in counts.most_common(NUM_EXAMPLES):
        example = next(_rejects(root, plan, reason), None) if what == "rejected" else None
        why = f", e.g. {example}" if example else f": {roles.told}" if reason == UNTRAINED and roles else ""
        lines.append(f"{count:,} {what} {reason}{why}")
    return "; ".join(lines)


def _rejects(root: Path, plan: RunPlan, reason: str) -> Iterator[str]:
    """Examples of one reason: where, why, and the beginning of the record."""
    for task in plan.tasks:
        path = root / "rejects" / f"{task.key}.jsonl.zst"
        if not path.exists():
            continue
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            for line in io.BufferedReader(stream):
                entry = orjson.loads(line)
                if entry["reason"] == reason:
                    name = task.ranges[entry["input"]][0].name
                    raw = entry.get("raw", entry.get("raw_base64", ""))[:EXAMPLE_CHARS]
                    yield f"{name} at {entry['position']}: {entry['message']} ({raw!r})"


def _hint(config: PipelineConfig, rejected: int, roles: UntrainedRoles | None) -> str:
    if roles:
        return roles.hint
    if rejected:
        return "mend what the reasons name; `astrai mask FILE -c PIPELINE` shows one record at a time"
    fields = ", ".join(repr(section.field) for section in config.input.sections or [])
    return f"the pipeline reads {fields}: look whether the records have it, and at the filters in `preprocessing`"
