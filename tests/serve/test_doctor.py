"""`astrai doctor`: real runs, runs with libraries taken away, and no credential on any page."""

import json
import os
import subprocess
import sys

import numpy
import pytest
import torch

from astrai_serve import doctor
from astrai_serve.doctor import Library
from astrai_serve.machine import Fact

SECTIONS = ["versions", "devices", "kernels", "tokenizer backends", "measured", "free disk", "credentials"]
SECRET = "s3cr3t-t0ken"
RUN = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Blocker())
import astrai
astrai.COMMANDS["doctor"] = ("astrai_serve.doctor", "command", "What this machine offers.")
sys.argv = ["astrai", "doctor", *{options!r}]
astrai.main()
"""


def run(*options: str, blocked: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess:
    """The command in its own process; modules in `blocked` are not to be found there."""
    return subprocess.run(
        [sys.executable, "-c", RUN.format(blocked=blocked, options=options)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
        check=False,
    )


@pytest.fixture(scope="module")
def secrets(tmp_path_factory) -> dict[str, str]:
    """Every variable and file that is looked for, each with a secret in it, in its path too."""
    home = tmp_path_factory.mktemp("home")
    files = [f"{SECRET}.json", ".aws/credentials", f"cloud-{SECRET}/{doctor.GOOGLE_FILE}", f"hf-{SECRET}/token"]
    for file in files:
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(SECRET)
    variables = {name: f"{SECRET}-{name}" for name in doctor.CREDENTIAL_VARIABLES}
    places = {"CLOUDSDK_CONFIG": f"{home}/cloud-{SECRET}", "HF_HOME": f"{home}/hf-{SECRET}", "HF_TOKEN_PATH": ""}
    pointer = {"GOOGLE_APPLICATION_CREDENTIALS": f"{home}/{SECRET}.json", "AWS_SHARED_CREDENTIALS_FILE": ""}
    return {"HOME": str(home)} | variables | places | pointer


@pytest.fixture(scope="module")
def page(secrets) -> subprocess.CompletedProcess:
    return run(NO_COLOR="1", **secrets)


@pytest.fixture(scope="module")
def answer(secrets) -> subprocess.CompletedProcess:
    return run("--json", FORCE_COLOR="1", **secrets)


def read_page(text: str) -> dict[str, list[str]]:
    """Section -> its lines."""
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    return {lines[0]: lines[1:] for lines in blocks}


def test_the_page(page):
    assert (page.returncode, page.stderr) == (0, "")
    sections = read_page(page.stdout)
    assert list(sections) == [*SECTIONS, "missing or slow"]
    assert all(line.startswith("  ") for lines in sections.values() for line in lines)
    assert "\x1b" not in page.stdout


def test_both_forms_have_the_same_facts(page, answer):
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["ok"] is True
    assert list(found["sections"]) == SECTIONS
    lines = read_page(page.stdout)
    for section, facts in found["sections"].items():
        shown = {name: fact for name, fact in facts.items() if fact["value"] is not None or fact["note"]}
        assert len(lines[section]) == len(shown)
        for line, (name, fact) in zip(lines[section], shown.items(), strict=True):
            assert line.startswith(f"  {name} ")
            assert (
                fact["value"] is None or not isinstance(fact["value"], str) or " ".join(fact["value"].split()) in line
            )
            assert fact["unit"] in line


def test_real_values(answer):
    sections = json.loads(answer.stdout)["sections"]
    assert sections["versions"]["torch"]["value"] == torch.__version__
    assert sections["tokenizer backends"]["auto takes"]["value"] == "fastokens"
    assert sections["kernels"]["backend"]["value"] in ("cpu", "torch")
    for name in ("memory copy", "float32 matmul, cpu", "bfloat16 matmul, cpu"):
        assert sections["measured"][name]["value"] > 0
        assert "thread" in sections["measured"][name]["note"]
    assert sections["free disk"]["working directory"]["value"] > 0


def test_no_secret_is_printed(page, answer):
    for done in (page, answer):
        assert SECRET not in done.stdout + done.stderr
    found = json.loads(answer.stdout)["sections"]["credentials"]
    assert {fact["value"] for fact in found.values()} == {"found"}
    advice = [line for line in read_page(page.stdout)["missing or slow"] if "AWS_WEB_IDENTITY_TOKEN_FILE" in line]
    assert len(advice) == 1
    assert "a file that is not there" in advice[0]


def test_credentials_not_found(monkeypatch, tmp_path):
    for name in [*doctor.CREDENTIAL_VARIABLES, *(v for _, moves, _ in doctor.CREDENTIAL_FILES for v, _ in moves)]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [fact.value for fact in doctor._credentials()] == ["none found"]
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert [(fact.name, fact.value) for fact in doctor._credentials()] == [("HF_TOKEN", "found")]


@pytest.mark.parametrize(
    ("variable", "file"),
    [
        ("", ".cache/huggingface/token"),
        ("HF_TOKEN_PATH", "mine"),
        ("HF_HOME", "token"),
        ("XDG_CACHE_HOME", "huggingface/token"),
    ],
)
def test_where_the_token_file_is(monkeypatch, tmp_path, variable, file):
    for name in ("HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(SECRET)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / file if variable == "HF_TOKEN_PATH" else tmp_path))
    facts = {fact.name: fact for fact in doctor._credentials()}
    fact = facts["Hugging Face token file"]
    assert fact.value == "found"
    assert variable in fact.note


def test_without_torch():
    done = run(blocked=("torch",))
    assert (done.returncode, done.stderr) == (0, "")
    sections = read_page(done.stdout)
    assert list(sections) == [*SECTIONS, "missing or slow"]
    assert any("torch" in line and "astrai[train]" in line for line in sections["missing or slow"])
    assert not any("error" in line for lines in sections.values() for line in lines)
    assert any("memory copy" in line and "GB/s" in line for line in sections["measured"])


@pytest.mark.parametrize("missing", ["psutil", "numpy", "fastokens"])
def test_a_needed_library_is_missing(missing):
    done = run("--json", blocked=("torch", missing))
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert list(found["sections"]) == SECTIONS
    assert found["ok"] is False
    needed = [advice for advice in found["missing or slow"] if advice["needed"]]
    assert [(advice["name"], advice["do"]) for advice in needed] == [(missing, "pip install 'astrai'")]


@pytest.mark.parametrize(
    ("library", "failure", "value", "words"),
    [
        (Library("numpy", "2.0"), None, numpy.__version__, ""),
        (Library("numpy", "99.0"), None, numpy.__version__, "too old"),
        (Library("numpy", "2.0"), ImportError("libx.so: no such file"), numpy.__version__, "does not load"),
        (Library("nowhere", "1", "kernels"), ModuleNotFoundError(name="nowhere"), "missing", "astrai[kernels]"),
        (Library("numpy"), ModuleNotFoundError(name="of_numpy"), numpy.__version__, "does not load"),
    ],
    ids=["good", "too old", "broken", "missing", "needs another"],
)
def test_versions(library, failure, value, words):
    fact = doctor._version(library, failure)
    assert fact.value == value
    assert words in fact.advice
    assert bool(fact.advice) == bool(words)
    assert fact.needed == (not library.extra)


@pytest.mark.parametrize(
    ("older", "newer"), [("2.9", "2.10"), ("2.13.0", "2.13.1+cpu"), ("1", "1.1rc1"), ("", "0.1"), ("0.2.9", "0.3a1")]
)
def test_versions_compare_by_number(older, newer):
    assert doctor._numbers(older) < doctor._numbers(newer)


def test_a_section_that_fails_says_so():
    def section():
        yield Fact("first", 1)
        raise OSError("no luck\nat all")

    first, error = doctor._facts(section)
    assert (first.name, error.note, error.value) == ("first", "OSError: no luck", None)
    assert error.advice


def test_kernels_that_are_not_built(tmp_path, monkeypatch):
    monkeypatch.setenv("ASTRAI_KERNELS_CACHE", str(tmp_path / "new"))
    monkeypatch.setenv("ASTRAI_KERNELS", "auto")
    backend = next(doctor._kernels({"torch": torch}))
    assert backend.value == "torch"
    assert "astrai kernels build" in backend.advice
    assert not (tmp_path / "new").exists()  # looking builds nothing


def test_nothing_that_a_terminal_obeys():
    assert doctor._visible("a\x1b[31m\nb\u202e") == "a\\x1b[31m b\\u202e"
