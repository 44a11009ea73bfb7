"""Answers on paper: every format holds what the query gave, and nothing in the data reaches the terminal."""

import io
import os
import re
from concurrent.futures import ThreadPoolExecutor

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from rich.console import Console

from astrai_data.errors import StoreError
from astrai_data.inspect.answer import paper
from astrai_data.inspect.output import rows_of, write_csv, write_json, write_parquet
from astrai_data.inspect.printable import printable, printable_cell, shorten_middle
from astrai_data.inspect.table import cell, write_table

TABLE = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "share": [0.5, None, float("nan")],
        "text": ["plain", 'quote " comma , line\n', None],
        "hash": pa.array([b"\x00\xff", b"", None], pa.binary()),
        "ids": pa.array([[1, 2], [], None], pa.list_(pa.uint16())),
        "runs": pa.array([[{"rule": "a", "raw": b"\x01"}], [], None]),
        "flag": [True, False, None],
    }
)


def written(write, table: pa.Table = TABLE) -> bytes:
    out = io.BytesIO()
    write(table.to_reader(max_chunksize=2), out)
    return out.getvalue()


def drawn(table: pa.Table, max_rows: int = 40, width: int = 1000, **kind) -> str:
    console = Console(file=io.StringIO(), width=width, **kind)
    write_table(table.to_reader(), console, max_rows)
    return console.file.getvalue()


def test_json_is_a_list_of_objects():
    assert orjson.loads(written(write_json)) == [
        {
            "id": 1,
            "share": 0.5,
            "text": "plain",
            "hash": "00ff",
            "ids": [1, 2],
            "runs": [{"rule": "a", "raw": "01"}],
            "flag": True,
        },
        {"id": 2, "share": None, "text": 'quote " comma , line\n', "hash": "", "ids": [], "runs": [], "flag": False},
        dict.fromkeys(TABLE.column_names),
    ]
    assert written(write_json, TABLE.slice(0, 0)) == b"[]\n"


def test_csv_reads_back():
    rows = csv.read_csv(
        io.BytesIO(written(write_csv)), parse_options=csv.ParseOptions(newlines_in_values=True)
    ).to_pylist()
    assert [row["id"] for row in rows] == [1, 2, None]
    assert [row["text"] for row in rows] == ["plain", 'quote " comma , line\n', ""]
    assert (rows[0]["hash"], rows[0]["ids"], rows[0]["runs"]) == ("00ff", "[1,2]", '[{"rule":"a","raw":"01"}]')
    assert written(write_csv, TABLE.slice(0, 0)).startswith(b'"id"')


def test_parquet_reads_back():
    again = parquet.read_table(io.BytesIO(written(write_parquet)))
    assert again.drop(["share"]).to_pylist() == TABLE.drop(["share"]).to_pylist()


def test_what_parquet_cannot_hold():
    table = pa.table({"month": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    with pytest.raises(StoreError, match="CAST"):
        written(write_parquet, table)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(pipe.read_bytes)
        with paper(str(pipe)) as sheet:
            sheet.write_json([1])
        assert got.result(timeout=10) == b"[\n  1\n]\n"
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_columns_of_one_name_are_numbered():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "a"])
    assert list(rows_of(table.to_reader())) == [{"a": 1, "a_1": 2, "a_2": 3}]


@pytest.mark.parametrize(
    ("value", "text", "shortened"),
    [
        (None, "", False),
        (True, "true", False),
        (1234567, "1234567", False),
        ([1, 2], "[1, 2]", False),
        (list(range(8192)), "[0, 1, 2, 3, 4, 5, 6, 7, … 8,184 more]", True),
        ({"rule": "a", "length": 3}, "{rule: a, length: 3}", False),
        ("two\nlines\ttab", "two\\nlines\\ttab", False),
        ("x" * 301, "x" * 300 + "…", True),
        (["\x1b[31m"], "[\\e[31m]", False),
    ],
)
def test_cells(value, text, shortened):
    assert cell(value) == (text, shortened)


def test_a_table_shows_its_first_rows_numbers_to_the_right():
    table = pa.table({"n": [1, 1000, 5], "name": ["a", "b", "c"]})
    assert [line.rstrip() for line in drawn(table, 2).splitlines()[2:]] == ["   1   a", "1000   b"]
    shown = [write_table(table.to_reader(), Console(file=io.StringIO()), most).has_more for most in (2, 3)]
    assert shown == [True, False]


WIDE = pa.table(
    {
        "document_id": [0, 12345],
        "name": ["a", "a long name " * 10],
        "ids": [[1, 2], list(range(50))],
        "note": ["x" * 40, None],
    }
)


def test_a_table_that_does_not_fit_is_drawn_record_by_record():
    lines = [line.rstrip() for line in drawn(WIDE, width=40).splitlines()]
    assert lines[:5] == [
        "── 1 " + "─" * 35,
        "document_id  0",
        "name         a",
        "ids          [1, 2]",
        "note         " + "x" * 27,
    ]
    assert lines[6] == "── 2 " + "─" * 35
    assert lines[7] == "document_id  12345"
    assert max(map(len, lines)) <= 40
    assert "alongname" * 10 in "".join(line[13:] for line in lines[8:14]).replace(" ", "")


@pytest.mark.parametrize("width", range(20, 130, 7))
def test_no_column_is_squeezed(width):
    """Side by side, every text keeps eight characters a line and no name is folded; otherwise it is records."""
    lines = drawn(WIDE, width=width).splitlines()
    if lines[0].startswith("── 1 "):
        assert width < len("document_id") + 8 + 24 + 8 + 9
        return
    assert lines[0].split() == ["document_id", "name", "ids", "note"]
    assert max(map(len, lines)) <= width
    begins = [lines[0].index(name) for name in ("name", "ids", "note")]
    assert begins[1] - begins[0] >= 8 + 3
    assert begins[2] - begins[1] >= 24 + 3
    assert width - begins[2] >= 8


def test_records_are_no_markup_and_no_escape():
    text = drawn(pa.table({"[bold]t": ["[red]x[/red]\x1b]0;t\x07"], "b" * 30: ["\n"]}), width=30, force_terminal=True)
    assert text.startswith("\x1b[2m── 1 ")
    assert "[red]x[/red]\\e]0;t\\x07" in text.replace("\n", "").replace(" ", "")


def test_names_inside_a_value_are_escaped_too():
    assert cell({"a\x1b[31m": 1}) == ("{a\\e[31m: 1}", False)


def test_data_in_a_table_is_no_markup_and_no_escape():
    text = drawn(pa.table({"[bold]t": ["[red]x[/red] :smile:", "\x1b]0;title\x07"]}), force_terminal=True)
    assert "[red]x[/red] :smile:" in text
    assert "[bold]t" in text
    assert "\\e]0;title\\x07" in text


@given(st.text())
def test_nothing_printable_obeys(text):
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", printable(text))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", printable_cell(text))


@given(st.text(), st.integers(2, 50))
def test_a_shortened_text_keeps_both_ends(text, most):
    short = shorten_middle(text, most)
    assert short == text or (short.startswith(text[: most // 2]) and short.endswith(text[-(most // 2) :]))
    assert len(short) <= most + 60
