"""What folders of inputs hold besides the files that are read, told in one line of bounded length.

Hidden files are not among it: they are passed over without a word, as a shell does.
"""

import dataclasses
from collections.abc import Sequence

from astrai_data.records.formats import kind_of

MOST_KINDS = 5
MOST_FOLDERS = 3
MOST_CHARS = 60  # of a file's name
MOST_FOLDER_CHARS = 200


@dataclasses.dataclass(frozen=True)
class PassedOver:
    """Files that are not read, since their names tell no format that is.

    Attributes:
        folders: the inputs that they lie in, as the user gave them.
        names: paths below these.
    """

    folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        folders = _listed([_legible(folder, MOST_FOLDER_CHARS) for folder in self.folders], MOST_FOLDERS, "")
        return f"passed over in {folders}: {self.told}"

    @property
    def told(self) -> str:
        """`4 files of other kinds (2 .png, e.g. a.png; 1 .rst, e.g. b.rst; LICENSE)`, the commonest kinds first."""
        by_kind: dict[str, list[str]] = {}
        for name in self.names:
            by_kind.setdefault(kind_of(name), []).append(name)
        kinds = sorted(by_kind.items(), key=lambda item: (-len(item[1]), item[0]))
        told = _listed([_example(kind, names) for kind, names in kinds], MOST_KINDS, "kinds", "; ")
        count = len(self.names)
        return f"{count:,} {'file' if count == 1 else 'files'} of other kinds ({told})"


def _example(kind: str, names: list[str]) -> str:
    count, first = len(names), _legible(min(names))
    if count == 1:
        return first
    return f"{count:,} {_legible(kind) if kind else 'without a suffix'}, e.g. {first}"


def _listed(told: Sequence[str], most: int, noun: str, between: str = ", ") -> str:
    more = f" and {len(told) - most:,} more {noun}".rstrip() if len(told) > most else ""
    return between.join(told[:most]) + more


def _legible(name: str, most: int = MOST_CHARS) -> str:
    """A name as a line of a log takes it: its end, without what would move the cursor."""
    cut = name if len(name) <= most else f"...{name[-most:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in cut)
