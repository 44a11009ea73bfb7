"""Looking into a store: SQL, rows, answers that go to files; and one record through a pipeline."""

import io

from astrai_data.errors import InputError, StoreError
from astrai_data.inspect.sql import connect, query

from .place import Place
from .row import THE_PLACE, Row


def sql(text: str):
    """A query as a user gives it."""
    return lambda place: place.astrai("inspect", place.store, "--sql", text)


def written(path: str, value: str):
    """The answer to a query, as Parquet."""
    return lambda p: p.astrai("inspect", p.store, "--sql", f"SELECT {value}", "--format", "parquet", "--output", path)


def inspect(*options: object):
    return lambda place: place.astrai("inspect", place.store, *options)


def schema_to_full_disk(place: Place) -> None:
    place.stdout = io.TextIOWrapper(io.FileIO("/dev/full", "w"))
    place.astrai("schema")


def two_streams(place: Place) -> None:
    with connect(place.open()) as session:
        first = session.stream("SELECT row_id FROM rows", batch_rows=1)
        first.read_next_batch()
        session.stream("SELECT 1").read_all()
        first.read_all()


def huge_number(place: Place) -> None:
    query(place.open(), "SELECT sum(9223372036854775807 + row_id * 0::HUGEINT) AS n FROM rows")


def mend_column(place: Place) -> None:
    """Ask again with the name that the message proposes."""
    proposed = place.told("try").removeprefix("did you mean '").split("'")[0]
    place.options = ["--sql", f"SELECT {proposed} FROM rows"]


def mend_row(place: Place) -> None:
    first, _, last = place.told("wanted").partition(" to ")
    place.options = ["--row", first]
    assert int(last) > int(first)


def mask_nothing(place: Place) -> None:
    empty = place.once("empty.jsonl", "\n\n")
    place.astrai("mask", empty, "-c", "pretrain", "--tokenizer", place.tokenizer)


def mend_empty(place: Place) -> None:
    place.write("empty.jsonl", {"text": "a record"})


def train_on_nothing(place: Place) -> None:
    texts = place.once("in.jsonl", {"body": "text of another field"})
    place.astrai("tokenizer", "train", texts, "-o", place / "new", "--vocab-size", 300)


def mend_answer(place: Place) -> None:
    (place / "no").mkdir()


def answer_to_file(place: Place) -> None:
    place.astrai("inspect", place.store, "--output", place / "no" / "answer.txt")


def empty_split(place: Place) -> None:
    place.astrai("inspect", place.store, "--show", 1, "--split", "test")


def row(name, fail, *says, kind=StoreError, without=None, mend=None) -> Row:
    return Row(name, fail, kind, says, without or {}, mend)


ROWS = [
    row("an unknown column", sql("SELECT num_tokns FROM rows"), "num_tokns", "line 1, column 8", mend=mend_column),
    row("an unknown view", sql("SELECT * FROM row"), "views: rows", "mean 'rows'"),
    row("no SQL", sql("SELEC 1"), "syntax error", "line 1, column 1", without=THE_PLACE),
    row("a number that is none", sql("SELECT CAST('a' AS INTEGER)"), "Could not convert", without=THE_PLACE),
    row("no query", sql(" ; "), "no statement", "one SELECT", "views: rows"),
    row("two queries", sql("SELECT 1; SELECT 2"), "the second is: SELECT 2", "one at a time"),
    row("a query that writes", sql("CREATE TABLE a (b INT)"), "CREATE TABLE", "--allow-files"),
    row("half a character", sql("SELECT '\ud83d'"), "\\ud83d", "take out"),
    row("an id of nobody", sql("SELECT decode([99999])"), "got: 99999", "0 to 452", "encode('text')"),
    row("a number too large", huge_number, "between -2^63", "CAST(... AS DOUBLE)"),
    row("a stream that another ended", two_streams, "SELECT row_id FROM rows", "read_all"),
    row("no room", written("/dev/full", "1"), "/dev/full", "No space left on device", "make room"),
    row("no room on the screen", schema_to_full_disk, "standard output", "No space left on device", "make room"),
    row(
        "no type in Parquet", written("a.parquet", "INTERVAL 1 YEAR"), "month_day_nano_interval", "CAST(... AS VARCHAR)"
    ),
    row("no such row", inspect("--row", 999), "row 999", "SELECT row_id FROM rows", mend=mend_row),
    row("a split without rows", empty_split, "split 'test'", "train or validation"),
    row("a folder that is not there", answer_to_file, "answer.txt", "make the folder first", mend=mend_answer),
    row("a file without a record", mask_nothing, "empty.jsonl", "2 bytes", kind=InputError, mend=mend_empty),
    row(
        "no text to learn from",
        train_on_nothing,
        "no field 'text'",
        "they have: ",
        "--field",
        kind=InputError,
        mend=lambda p: p.options.extend(["--field", "body"]),
    ),
]
