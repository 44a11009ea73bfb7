"""One row of the table of errors: a real bad input, and what its message must tell."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from astrai_data.errors import AstraiError

from .place import Place

FIELDS = ("where", "got", "wanted", "try")

# Why a field may be missing. Each reason says what the reader has in its stead.
WANTED_IS_THE_WAY = "what is wanted is what to write; there is nothing else to try"
NAMED = "what is wrong is quoted in the first line"
THE_PLACE = {"try": "the first line is DuckDB's own word on the place of the query that is shown"}
EACH_ITS_OWN = "the first line lists several problems, each with fields of its own"
NOT_THEIRS = "a defect or a failure of ours: nothing that the reader gave was wrong"


@dataclass(frozen=True)
class Row:
    """A bad input and its message.

    name: of the case.
    fail: makes the bad input in a folder and runs the real code on it, which raises or prints.
    kind: class of the error.
    says: what the message contains.
    without: field that the message does not have -> why it can mean nothing here.
    mend: does what the message says, after which `fail` comes to a good end.
    """

    name: str
    fail: Callable[[Place], object]
    kind: type[AstraiError]
    says: tuple[str, ...]
    without: Mapping[str, str] = field(default_factory=dict)
    mend: Callable[[Place], object] | None = None
