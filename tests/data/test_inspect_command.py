"""`astrai inspect` as a user runs it: what goes where, in which format, with which exit code."""

import importlib
import re
import subprocess
import sys
from typing import get_args, get_type_hints

import orjson
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

import astrai
from astrai_data.cli.inspect import command
from astrai_data.errors import StoreError
from astrai_data.inspect import excerpt, summary
from astrai_data.inspect.summary import ledger_lines
from astrai_data.store import TokenStore
from tests.data.small_stores import write_small_store

app = typer.Typer()
app.command()(command)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("command") / "store"
    write_small_store(root)
    return str(root)


def run(*arguments: str, **kind):
    return CliRunner().invoke(app, list(arguments), **kind)


def test_the_summary_object_has_the_keys_of_the_contract(store):
    answer = run(store, "--json")
    facts = orjson.loads(answer.stdout)
    opened = TokenStore.open(store, split=None)
    counts = ("num_rows", "num_segments", "num_documents", "num_tokens", "num_trained")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert {name: facts[name] for name in counts} == {name: getattr(opened, name) for name in counts}
    assert facts["num_shards"] == len(opened.shards)
    assert facts["fill"] == opened.num_tokens / (opened.num_rows * 64)
    assert facts["columns"] == {"sequence": "uint16"}
    assert [domain["domain"] for domain in facts["domains"]] == [None, "code", "web"]
    assert sum(domain["num_trained"] for domain in facts["domains"]) == facts["num_trained"]
    assert facts["ledger"] == opened.table("ledger").to_pylist()
    assert facts["tokenizer"]["ids_sha256"] == "0" * 64
    assert facts["store_id"] == opened.store_id
    assert facts["rejects"] == [{"reason": "invalid_json", "count": 2}, {"reason": "invalid_utf8", "count": 1}]
    assert facts == summary(opened)


def test_the_summary_page(store):
    page = run(store).stdout
    for text in (
        TokenStore.open(store).store_id,
        "22 read = 7 kept + 12 filtered (empty_text 12) + 3 rejected (invalid_json 2, invalid_utf8 1)",
        "239 from text = 214 trained (response 214) + 25 masked (prompt 25); trained counts labels: flagged",
        "512 slots = 239 tokens + 273 padding",
        f"astrai inspect {store} --show 3",
        "89.5% trained",
    ):
        assert text in page
    assert "\x1b" not in page


def test_ledger_lines_leave_out_what_is_not_there():
    entries = [
        {"balance": "records", "domain": None, "what": what, "reason": "", "count": 2} for what in ("read", "kept")
    ]
    assert ledger_lines(entries) == [("records", "2 read = 2 kept")]
    assert ledger_lines([]) == []


def test_sql_as_table_says_on_stderr_how_many_rows_are_left_out(store):
    answer = run(store, "--sql", "SELECT a.row_id FROM rows a, rows b")
    assert answer.stdout.splitlines()[0].strip() == "row_id"
    assert len(answer.stdout.splitlines()) == 42
    assert "24 more rows" in answer.stderr


def test_sql_from_standard_input(store):
    answer = run(store, "--sql", "-", "--json", input="SELECT sum(num_tokens) AS n\nFROM rows\n")
    assert orjson.loads(answer.stdout) == [{"n": 239}]


def test_sql_as_csv_and_parquet(store, tmp_path):
    sql = "SELECT row_id, num_tokens FROM rows LIMIT 2"
    assert run(store, "--sql", sql, "--format", "csv").stdout == '"row_id","num_tokens"\n0,10\n1,45\n'
    out = tmp_path / "out.parquet"
    answer = run(store, "--sql", sql, "--format", "parquet", "--output", str(out))
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert parquet.read_table(out).to_pylist() == [{"row_id": 0, "num_tokens": 10}, {"row_id": 1, "num_tokens": 45}]


def test_table_and_json_go_to_a_file_too(store, tmp_path):
    for name, arguments in (("a.txt", []), ("a.json", ["--json"])):
        assert run(store, "--sql", "SELECT 7 AS seven", "--output", str(tmp_path / name), *arguments).stdout == ""
    assert (tmp_path / "a.txt").read_text().split() == ["seven", "─────", "7"]
    assert orjson.loads((tmp_path / "a.json").read_bytes()) == [{"seven": 7}]


def test_a_failed_query_leaves_no_file(store, tmp_path):
    answer = run(store, "--sql", "SELECT error('no') FROM rows", "--json", "--output", str(tmp_path / "a.json"))
    assert isinstance(answer.exception, StoreError)
    assert list(tmp_path.iterdir()) == []
    answer = run(store, "--output", str(tmp_path / "missing" / "a.txt"))
    assert "cannot be written" in str(answer.exception)


def test_files_are_out_of_reach_without_allow_files(store, tmp_path):
    out = tmp_path / "out.csv"
    copying = ["--sql", f"COPY (SELECT 1) TO '{out}'"]
    assert "--allow-files" in str(run(store, *copying).exception)
    assert not out.exists()
    answer = run(store, *copying, "--allow-files")
    assert (answer.exit_code, out.exists()) == (0, True)


def test_show(store):
    answer = run(store, "--show", "2", "--split", "validation")
    assert "In 1987 there⟦ were 365 days.⟧" in answer.stdout
    rows = orjson.loads(run(store, "--show", "2", "--split", "validation", "--json").stdout)
    assert [row["row_id"] for row in rows] == [2, 7]
    assert [run["text"] for run in rows[0]["segments"][0]["runs"]] == ["In 1987 there", " were 365 days."]


def test_show_one_row(store):
    [row] = orjson.loads(run(store, "--row", "0", "--json").stdout)
    assert row["row_id"] == 0
    page = run(store, "--row", "0").stdout
    assert page.count("\nrow ") == 1
    assert "row 0 (train): 10 of 64 tokens" in page
    assert "no such row" in str(run(store, "--row", "8").exception)


def test_full_shows_all_of_a_long_row(store, monkeypatch):
    monkeypatch.setattr(excerpt, "MAX_ROW_LINES", 3)
    short, full = run(store, "--show", "8"), run(store, "--show", "8", "--full")
    assert "left out" in short.stdout
    assert "left out" not in full.stdout
    assert ("--full" in short.stderr, full.stderr) == (True, "")
    assert run(store, "--show", "8", "--json").stderr == ""


@pytest.mark.parametrize(
    "words",
    [["inspect"], ["mask"], ["export"], ["tokenizer", "train"], ["tokenizer", "show"]],
    ids=" ".join,
)
def test_help_fits_eighty_columns(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    page = CliRunner().invoke(astrai.build_app(), [*words, "--help"]).stdout
    module, functions, _ = astrai.COMMANDS[words[0]]
    function = getattr(importlib.import_module(module), functions if isinstance(functions, str) else words[1])
    declared = [name for option in get_args_of(function) for name in option.param_decls or ()]
    assert max(map(len, page.splitlines())) <= 80
    assert "…" not in page
    for name in declared:
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", page), f"{name} is not spelled out"


def get_args_of(function) -> list:
    hints = get_type_hints(function, include_extras=True)
    return [get_args(hint)[1] for name, hint in hints.items() if name != "return"]


def test_verify_finds_a_flipped_byte(tmp_path):
    root = tmp_path / "store"
    write_small_store(root)
    whole = run(str(root), "--verify")
    assert whole.exit_code == 0
    assert re.match(r"ok: \d+ files, \d\d\.\d kB, 8 rows, 239 tokens\n", whole.stdout)
    assert orjson.loads(run(str(root), "--verify", "--json").stdout) == {"ok": True, "findings": []}
    damaged = next((root / "data").rglob("documents.parquet"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    answer = run(str(root), "--verify")
    assert answer.exit_code == 1
    assert "documents.parquet: " in answer.stdout
    found = run(str(root), "--verify", "--json")
    assert found.exit_code == 1
    assert "documents.parquet" in orjson.loads(found.stdout)["findings"][0]["path"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sql", "SELECT 1", "--show", "1"],
        ["--show", "1", "--verify"],
        ["--show", "0"],
        ["--format", "xml"],
        ["--format", "csv"],
        ["--show", "1", "--format", "csv"],
        ["--sql", "SELECT 1", "--format", "parquet"],
        ["--allow-files"],
        ["--split", "train"],
        ["--full"],
        ["--sql", "SELECT 1", "--full"],
        ["--show", "1", "--row", "1"],
        ["--row", "0", "--verify"],
        ["--row", "-1"],
        ["--row", "0", "--split", "train"],
        ["--sql", "SELECT 1", "--split", "train"],
        ["--unknown"],
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(store, arguments):
    assert run(store, *arguments).exit_code == 2


def test_no_store(tmp_path):
    assert isinstance(run(str(tmp_path / "nothing")).exception, StoreError)


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [([], ("torch", "duckdb", "tokenizers")), (["--sql", "SELECT 1"], ("torch", "tokenizers"))],
)
def test_only_what_is_needed_is_imported(store, arguments, absent):
    code = f"""
import sys, typer
from astrai_data.cli.inspect import command
assert not {{"duckdb", "numpy", "pyarrow"}} & set(sys.modules)
app = typer.Typer(); app.command()(command)
app({[store, *arguments]!r}, standalone_mode=False)
print([name for name in {absent!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_failing_answer_leaves_the_file_that_is_there(store, tmp_path):
    kept = tmp_path / "keep.txt"
    kept.write_text("mine")
    assert isinstance(run(store, "--sql", "select 1 from nope", "-o", str(kept)).exception, StoreError)
    assert kept.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]
    assert run(store, "--json", "-o", f"{store}/manifest.json").exit_code == 2
    assert run(store, "--verify").exit_code == 0
