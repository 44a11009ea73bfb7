"""Why conversations train nothing: the roles in them, and the keys of `mask` that would train these.

Looked at only after records were lost for it, on a sample of them; no run pays for it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson
import pyarrow as pa

from astrai_data.build.rules import KNOWN_ROLES, trains_role
from astrai_data.config import PipelineConfig

MOST_ROLES = 5
MOST_CHARS = 40  # of one role


@dataclass(frozen=True)
class UntrainedRoles:
    """The roles of conversations none of whose messages is trained.

    Attributes:
        roles: the commonest first.
        last: the one that most often speaks last, which is what one trains as a rule.
        has_strange: whether one is neither a usual name nor named in `mask`.
        trained: what `mask` trains, in words.
    """

    roles: tuple[str, ...]
    last: str
    has_strange: bool
    trained: str

    @property
    def told(self) -> str:
        """What is wrong."""
        return f"`mask` trains {self.trained}, the roles of the messages are {_listed(self.roles)}"

    @property
    def hint(self) -> str:
        """What to write into the pipeline."""
        pair = orjson.dumps({self.last[:MOST_CHARS]: "train"}).decode().replace(":", ": ")
        return f'name the roles to train in the pipeline\'s `mask`, such as "mask": {pair}'


def untrained_roles(config: PipelineConfig, batches: Iterable[pa.RecordBatch]) -> UntrainedRoles | None:
    """The roles of those conversations in `batches` of which no role is trained; None if there is none.

    `batches` hold the columns of the `$role` sections, as the builder takes them.
    """
    sections = config.input.sections or []
    columns = [f"json:{section.field}" for section in sections if section.action == "$role"]
    seen: Counter[str] = Counter()
    last: Counter[str] = Counter()
    for roles in (roles for batch in batches for name in columns for roles in _roles(batch.column(name))):
        if roles and not any(trains_role(config, role) for role in roles):
            seen.update(roles)
            last[roles[-1]] += 1
    if not seen or any(section.action == "train" for section in sections):
        return None
    named = {*KNOWN_ROLES, *config.mask}
    ordered = tuple(role for role, _ in seen.most_common())
    return UntrainedRoles(ordered, last.most_common(1)[0][0], bool(seen.keys() - named), _trained(config))


def _roles(column: pa.LargeBinaryArray) -> Iterator[list[str]]:
    """The roles of each conversation, in the order of its messages; what is no conversation has none."""
    for raw in column.to_pylist():
        value = None if raw is None else orjson.loads(raw)
        messages = [message for message in value if isinstance(message, dict)] if isinstance(value, list) else []
        yield [role for message in messages if isinstance(role := message.get("role"), str)]


def _trained(config: PipelineConfig) -> str:
    masked, trained = ([role for role in config.mask if config.mask[role] == flag] for flag in ("mask", "train"))
    if config.mask_default == "train":
        return f"all roles but {_listed(masked)}"
    return _listed(trained) if trained else "no role"


def _listed(roles: Iterable[str]) -> str:
    roles = list(roles)
    more = f" and {len(roles) - MOST_ROLES} more" if len(roles) > MOST_ROLES else ""
    return ", ".join(repr(role[:MOST_CHARS]) for role in roles[:MOST_ROLES]) + more
