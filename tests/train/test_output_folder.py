"""The folder that a run writes into: new, empty, or one with a run; somebody else's folder is left as it is."""

import json
from dataclasses import asdict

import pytest

from astrai_train.config import TrainConfig
from astrai_train.errors import TrainError
from astrai_train.report import StepReport
from astrai_train.run import plan_run
from tests.train.small_runs import StopAfter, metrics, names, run, settings, write_model

FOREIGN = {
    "a home folder": [".bashrc", ".ssh/id", "Documents/letter.txt"],
    "a folder of data": ["part-0.parquet"],
    "a project": ["README.md", "src/main.py"],
    "another program's run": ["checkpoint-500/model.safetensors", "trainer_state.json"],
    "a model": ["config.json", "model.safetensors"],
    "a model's configuration alone": ["config.json"],
    "a tokenizer": ["tokenizer.json", "tokenizer_config.json"],
    "a store that is being made": [".work/plan.json", "data/0123/task.json"],
    "copies of checkpoints": ["epoch_0_step_2.old/config.json"],
}


def fill(folder, entries) -> set[str]:
    for entry in entries:
        (folder / entry).parent.mkdir(parents=True, exist_ok=True)
        (folder / entry).write_text("{}")
    return everything(folder)


def everything(folder) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_folder_is_refused_and_left_as_it_is(tmp_path, text_store, case, resume):
    before = fill(tmp_path / "run", FOREIGN[case])
    with pytest.raises(TrainError, match="other things than a run") as caught:
        run(tmp_path, text_store, max_steps=1, resume=resume)
    assert str(tmp_path / "run" / "run") in caught.value.hint
    assert any(entry.split("/")[0] in caught.value.got for entry in FOREIGN[case])
    assert everything(tmp_path / "run") == before


def test_a_plan_refuses_it_too(tmp_path, text_store):
    fill(tmp_path / "run", FOREIGN["a project"])
    with pytest.raises(TrainError, match=r"(?s)other things.*README.md, src"):
        plan_run(TrainConfig(**settings(tmp_path, text_store, max_steps=1)))


def test_what_the_hint_says_works(tmp_path, text_store):
    fill(tmp_path / "run", FOREIGN["a project"])
    assert run(tmp_path, text_store, max_steps=1, output_dir=str(tmp_path / "run" / "run")).step == 1


@pytest.mark.parametrize(
    "entries", [[], ["train.json", "train.log", "nohup.out", "job-7.err"], [".gitignore", ".DS_Store"]], ids=str
)
def test_a_configuration_and_logs_may_lie_there(tmp_path, text_store, entries):
    (tmp_path / "run").mkdir()
    before = fill(tmp_path / "run", entries)
    assert run(tmp_path, text_store, max_steps=1).step == 1
    assert before <= everything(tmp_path / "run")


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_did_not_come_to_its_first_step_is_begun_again(tmp_path, text_store, resume):
    """It leaves a lock, and perhaps half a checkpoint or half a file of metrics."""
    with pytest.raises(TrainError, match="no such device"):
        run(tmp_path, text_store, max_steps=1, device="cuda:77")
    assert everything(tmp_path / "run") == {".lock"}
    fill(tmp_path / "run", [".epoch_0_step_1.7-abcd.tmp/config.json", ".metrics.jsonl.7-abcd.tmp"])
    assert run(tmp_path, text_store, max_steps=1, resume=resume).step == 1


def test_a_run_goes_on_whatever_was_laid_beside_it(tmp_path, text_store):
    run(tmp_path, text_store, max_steps=4, callbacks=[StopAfter(2)])
    fill(tmp_path / "run", ["plots/loss.png", "notes.txt"])
    assert run(tmp_path, text_store, max_steps=4, resume=True).step == 4
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2, 3, 4]


def test_a_run_without_a_checkpoint_yet_goes_on_too(tmp_path, text_store):
    """Its metrics tell that it is one, from the first byte on."""
    line = json.dumps(asdict(StepReport(1, 0, 64, 63, 6.2, 1e-3, 0.9, 800.0, 0.08))).encode() + b"\n"
    for number, content in enumerate([b"", line, line * 3, line + b"{", line[:9], line[:-1]]):
        folder = tmp_path / str(number)
        fill(folder / "run", ["plots/loss.png"])
        (folder / "run" / "metrics.jsonl").write_bytes(content)
        assert run(folder, text_store, max_steps=1, resume=True).step == 1
        assert names(folder) == ["epoch_0_step_1"]
        assert [line["step"] for line in metrics(folder)] == [1]


METRICS_OF_OTHERS = [
    '{"step": 10, "loss": 2.5, "learning_rate": 0.001}\n',
    '{"loss": 2.5}\n{"loss": 2.4}\n',
    "{}",
    "[1]\n",
    "step,loss\n1,2.5\n",
    "\n",
    "[" * 5000 + "\n",
    b"\xff\xfe\n",
]


@pytest.mark.parametrize("content", METRICS_OF_OTHERS, ids=range(len(METRICS_OF_OTHERS)))
@pytest.mark.parametrize("begun", [False, True])
def test_metrics_of_another_program_are_left_as_they_are(tmp_path, text_store, content, begun):
    """A run that goes on would cut them and write on."""
    (tmp_path / "run").mkdir()
    if begun:
        run(tmp_path, text_store, max_steps=1)
    path, content = tmp_path / "run" / "metrics.jsonl", content if isinstance(content, bytes) else content.encode()
    path.write_bytes(content)
    for resume in (False, True):
        with pytest.raises(TrainError, match=r"metrics\.jsonl is not one of ours") as caught:
            run(tmp_path, text_store, max_steps=2, resume=resume)
        assert caught.value.where == path
        assert path.read_bytes() == content
    path.unlink()  # what the hint says
    assert run(tmp_path, text_store, max_steps=2, resume=True).step == 2


def test_a_model_is_not_trained_into_its_own_folder(tmp_path, text_store):
    """Its config.json would go on being taken for the result."""
    model = write_model(tmp_path / "run")
    with pytest.raises(TrainError, match=r"(?s)other things.*config.json"):
        run(tmp_path, text_store, model=str(model), max_steps=1)
