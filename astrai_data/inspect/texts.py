"""The texts of one field of some inputs, to learn a tokenizer from; what is passed over is counted and told.

The field holds a text, or a conversation: then the contents of its messages are texts.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import orjson

from astrai_data.config import InputSpec
from astrai_data.errors import InputError
from astrai_data.inspect.fields import first_records, text_field, told_fields
from astrai_data.inspect.numbers import counted
from astrai_data.records import FieldSpec, InputFile, InputRange, RangeReader, cut_inputs, find_inputs
from astrai_data.tokenizer.conversation import text_of

MAX_RECORD_BYTES = 2**26


class Texts:
    """Iterates once over the texts of `field` in the files of `inputs`.

    At the end `warn` is told of files of other kinds and of records without text; if there was no text at all,
    `InputError` is raised.

    Attributes:
        count: texts given so far.
        num_bytes: of these, in UTF-8.
    """

    def __init__(self, inputs: list[str], field: str, warn: Callable[[str], None]) -> None:
        self._inputs, self._warn = inputs, warn
        self._name = field
        found = find_inputs([InputSpec(path=path) for path in inputs])
        self._files, self._passed_over = found.files, found.passed_over
        self.count = self.num_bytes = self._num_read = self._num_empty = 0
        self._rejected: Counter[str] = Counter()
        self._lacking: Counter[int] = Counter()  # number of the file -> its records without the field

    def __iter__(self) -> Iterator[str]:
        kinds = [self._kind(file) for file in self._files]
        for task in cut_inputs(self._files):
            for part in task:
                yield from self._of_range(part, kinds[part.file])
        self._tell()

    def _kind(self, file: InputFile) -> str:
        """How the field is read: as `json` if the first value in the file is a list."""
        values = (record.get(self._name) for record in first_records(file))
        return "json" if isinstance(next(filter(None, values), None), list) else "text"

    def _of_range(self, part: InputRange, kind: str) -> Iterator[str]:
        file, field = self._files[part.file], FieldSpec(self._name, kind)
        for chunk in RangeReader(file, part.begin, part.end, [field], max_record_bytes=MAX_RECORD_BYTES):
            values = chunk.columns.column(field.column)
            rows = list(map(_texts, values.to_pylist()))
            texts = [text for row in rows for text in row]
            self._num_read += chunk.num_read
            self._rejected.update(reject.reason for reject in chunk.rejects)
            self._lacking[part.file] += values.null_count
            self._num_empty += rows.count([]) - values.null_count
            self.count += len(texts)
            self.num_bytes += sum(len(text.encode()) for text in texts)
            yield from texts

    def _tell(self) -> None:
        """Warn of what was passed over, or fail where that was everything."""
        passed = [*self._told_lacking(), *self._told_others()]
        if not self.count:
            raise InputError(
                "there is no text to learn from",
                where=", ".join(self._inputs),
                got="; ".join(passed) or "no records",
                wanted=f"records with text in {self._name!r}",
                hint="name the field that holds the text with --field",
            )
        for text in [*([str(self._passed_over)] if self._passed_over.names else []), *passed]:
            self._warn(text)

    def _told_lacking(self) -> Iterator[str]:
        number, most = max(self._lacking.items(), key=lambda item: item[1], default=(0, 0))
        if not most:
            return
        name = self._name
        records = [record for record in first_records(self._files[number]) if record.get(name) is None]
        is_null = all(name in record for record in records)
        lack = f"null in {name!r}" if is_null and records else f"no field {name!r}"
        count = self._lacking.total()
        told = f"{count:,} of {counted(self._num_read, 'record')} {'has' if count == 1 else 'have'} {lack}"
        other = text_field(records)
        is_wrong = count > self._num_read / 2 and other not in (None, name)
        advice = f"; try --field {other}" if is_wrong else ""
        yield f"{told}; they have: {told_fields(records)}{advice}" if records else told

    def _told_others(self) -> Iterator[str]:
        if self._num_empty:
            yield f"in {self._num_empty:,} of {counted(self._num_read, 'record')} the text is empty"
        if self._rejected:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in self._rejected.most_common())
            yield f"{counted(self._rejected.total(), 'record')} could not be used ({reasons})"


def _texts(value: str | bytes | None) -> list[str]:
    """The texts in a field: itself, or the contents of a conversation's messages (JSON bytes)."""
    value = orjson.loads(value) if isinstance(value, bytes) else value
    found = [it.get("content") for it in value if isinstance(it, dict)] if isinstance(value, list) else [value]
    return [text for text in map(text_of, found) if text]
