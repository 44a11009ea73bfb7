"""Training runs: settings, devices, stores and models that do not fit, checkpoints, folders in use."""

import json
from pathlib import Path

import torch

from astrai_data.errors import StoreError
from astrai_data.store import TokenStore
from astrai_train.checkpoint.marker import write_marker
from astrai_train.checkpoint.optimizer_state import restore_optimizer
from astrai_train.checkpoint.tokenizer_files import tokenizer_files
from astrai_train.config import TrainConfig
from astrai_train.device import choose_precision
from astrai_train.errors import CheckpointError, NonFiniteError, TrainConfigError, TrainError
from astrai_train.occupancy import occupied
from astrai_train.run import train as run_training
from tests.train.small_models import TINY

from .place import CHAT, Place
from .row import EACH_ITS_OWN, FIELDS, NAMED, WANTED_IS_THE_WAY, Row

PLAIN = {"try": WANTED_IS_THE_WAY}
SMALL = TINY | {"vocab_size": 512, "max_position_embeddings": 64}


def settings(place: Place, **changes) -> dict:
    """Of a run of two steps."""
    model = place.once("model.json", SMALL)
    base = {"data": place.store, "model": model, "output_dir": place / "run", "max_steps": 2, "rows_per_batch": 2}
    return {key: str(value) if isinstance(value, Path) else value for key, value in (base | changes).items()}


def train(place: Place, *options: object, **changes) -> None:
    """The command with these settings."""
    given = settings(place, device="cpu", **changes)
    flags = [part for key, value in given.items() for part in (f"--{key.replace('_', '-')}", value)]
    place.astrai("train", *flags, "--quiet", *options)


def config(**changes):
    return lambda place: TrainConfig.from_dict(settings(place) | changes)


def file(content: object):
    def fail(place: Place) -> None:
        path = place.once("train.json", content)
        place.astrai("train", "--config", path, "-o", place / "run", "--dry-run")

    return fail


def made_before(place: Place) -> None:
    """A run of two steps, done once."""
    if not (place / "run").exists():
        run_training(TrainConfig(**settings(place, device="cpu")))


def used_folder(place: Place) -> None:
    made_before(place)
    train(place)


def resumed(spoil, *options: object, **changes):
    """A run that goes on from a checkpoint which was spoilt."""

    def fail(place: Place) -> None:
        made_before(place)
        spoil(place)
        train(place, "--resume", *options, **changes)

    return fail


def marker(change):
    """Spoil the marker of the checkpoint."""

    def spoil(place: Place) -> None:
        path = place.file("run/epoch_*/training/complete.json")
        content = json.loads(path.read_bytes())
        path.write_text(json.dumps(change(content)))

    return spoil


def lost(pattern: str):
    return lambda place: place.file(pattern).unlink()


def grown(pattern: str):
    return lambda place: place.file(pattern).open("ab").write(b"x")


def state(change):
    """Another state of training, in a checkpoint that is whole."""

    def spoil(place: Place) -> None:
        path = place.file("run/epoch_*/training/state.json")
        path.write_text(json.dumps(change(json.loads(path.read_bytes()))))
        (path.parent / "complete.json").unlink()
        write_marker(path.parent.parent)

    return spoil


def no_metrics(place: Place) -> None:
    place.write("run/metrics.jsonl/x", "")
    train(place, "--resume")


def small_vocabulary(place: Place) -> None:
    place.once("model.json", SMALL | {"vocab_size": 100})
    train(place)


def mend_vocabulary(place: Place) -> None:
    smallest = int(place.told("wanted").removeprefix("at least ").split(",")[0])
    assert "raise vocab_size" in place.told("try")
    place.edit(place / "model.json", vocab_size=smallest)


def large_step(place: Place) -> None:
    train(place, accumulate=10**6)


def mend_large_step(place: Place) -> None:
    """The message offers the most that there is."""
    place.options = place.told("try").split(" takes ")[0].split()


def another_store(place: Place) -> None:
    made_before(place)
    place.pipeline(inputs=[place.write("other.jsonl", {"text": "other words, of which there are a few"})])
    train(place, "--resume", data=place / "out")


def in_the_texts(place: Place) -> None:
    """A folder that somebody else uses."""
    place.write("mine/texts.parquet", "")
    place.write("mine/letters/one.txt", "")
    train(place, output_dir=place / "mine")


def others_metrics(place: Place) -> None:
    if not (place / "theirs.jsonl").exists():
        place.write("run/metrics.jsonl", '{"loss": 2.5}\n')
    train(place, "--resume")


def locked_by_a_folder(place: Place) -> None:
    """Where the lock is to be, there is a folder."""
    place.write("run/metrics.jsonl", "")
    place.write("run/.lock/x", "")
    train(place, "--resume")


def linked(target: str):
    def fail(place: Place) -> None:
        link = place / "link"
        if not link.is_symlink():
            link.symlink_to(place / target)
        train(place, output_dir=link)

    return fail


def mend_folder(place: Place) -> None:
    place.options = ["-o", place.told("try").rpartition(" ")[2]]


def few_positions(place: Place) -> None:
    place.once("model.json", SMALL | {"max_position_embeddings": 8})
    train(place)


def mend_positions(place: Place) -> None:
    """The message offers `--window 8`."""
    assert "`--window 8`" in place.told("try")
    place.options = ["--window", "8"]


def other_tokenizer(place: Place) -> None:
    place.edit(place.model / "tokenizer_config.json", special_tokens={})
    (place.model / "tokenizer.json").write_bytes((place.model / "tokenizer.json").read_bytes().replace(b"fox", b"fix"))
    from tests.data.toys import write_bpe_tokenizer

    write_bpe_tokenizer(place.model, vocab_size=400)
    train(place, model=place.model)


def untrained(place: Place) -> None:
    """A chat whose answers are not trained."""
    config = CHAT | {"mask": {"user": "mask"}, "preprocessing": {"max_packed_len": 64, "drop_untrained": False}}
    chat = place.write("chat.jsonl", {"messages": [{"role": "user", "content": "hello"}]})
    place.pipeline(config | {"mask": {"assistant": "train"}}, [chat])
    train(place, data=place / "out")


def not_finite(place: Place) -> None:
    run_training(TrainConfig(**settings(place, device="cpu", lr=1e30, clip=0, warmup=0, max_steps=20)))


def held(place: Place) -> None:
    with occupied(place / "run"):
        train(place)


def in_the_way(place: Place) -> None:
    """Files have the names that the checkpoint might get."""
    for epoch in range(3):
        place.write(f"run/epoch_{epoch}_step_2", "")
    train(place)


def other_optimizer(place: Place) -> None:
    model = torch.nn.Linear(2, 2)
    restore_optimizer(torch.optim.AdamW(model.parameters()), model, {"weight.exp_avg": torch.zeros(3)}, "a checkpoint")


def file_elsewhere(place: Place) -> None:
    entry = place.open().manifest.tokenizer
    place.edit(place.store / "manifest.json", tokenizer=entry | {"files": {"../a": "0"}})
    tokenizer_files(TokenStore.open(place.store))


def tokenizer_gone(place: Place) -> None:
    place.file("store/meta/*/tokenizer/tokenizer_config.json").unlink() if place.store else None
    tokenizer_files(TokenStore.open(place.store))


def tokenizer_other(place: Place) -> None:
    next(place.store.glob("meta/*/tokenizer/tokenizer_config.json")).write_text("{}")
    tokenizer_files(TokenStore.open(place.store))


def row(name, fail, *says, kind=TrainError, without=None, mend=None) -> Row:
    return Row(name, fail, kind, says, without or {}, mend)


def key(name, fail, *says, without=None) -> Row:
    return row(name, fail, *says, kind=TrainConfigError, without=without)


def point(name, fail, *says) -> Row:
    return row(name, fail, *says, kind=CheckpointError)


ROWS = [
    key("an unknown key", config(lrr=1), '"lrr"', "try: lr", without={"got": NAMED}),
    key("a key that is no text", lambda p: TrainConfig.from_dict({1: 2}), "unknown key 1", without={"got": NAMED}),
    key("a wrong value", config(rows_per_batch=None, batch_tokens=-1), "got: -1", "above 0", without=PLAIN),
    key("two problems", config(lrr=1, seed="a"), "has 2 problems", without=dict.fromkeys(FIELDS, EACH_ITS_OWN)),
    key("two sizes", config(batch_tokens=64), "batch_tokens = 64, rows_per_batch = 2", "take one of the two out"),
    key("half a step of warm-up", config(warmup=1.5), "got: 1.5", "a fraction of the steps"),
    key("a list", lambda p: TrainConfig.from_dict([1]), "got: [1]", "put the keys into"),
    key("a file with a list", file("[1]"), "train.json", "got: [1]", '"model": "nano"'),
    key("a file with a wrong key", file({"lrr": 1}), "train.json: lrr", "try: lr", without={"got": NAMED}),
    key("a file that is not JSON", file("{lr: 1}"), "train.json, line 1, column 2", "double quotes"),
    row("a device of nobody", lambda p: choose_precision("gpu"), "got: gpu", "cuda:N", "auto"),
    row("a device that is not here", lambda p: choose_precision("cuda:99"), "got: cuda:99", "astrai doctor"),
    row("a used folder", used_folder, "/run", "epoch_", mend=lambda p: p.options.append("--resume")),
    row("a store for a folder", lambda p: train(p, output_dir=p.store), "manifest.json", "-o with a folder elsewhere"),
    row(
        "a folder in a store",
        lambda p: train(p, output_dir=p.store / "new" / "run"),
        "lies in a token store",
        "/new/run",
        "store/manifest.json",
        "-o with a folder elsewhere",
        mend=lambda p: p.options.extend(["-o", p / "run"]),
    ),
    row("other things in the folder", in_the_texts, "got: letters, texts.parquet", "/run", mend=mend_folder),
    row(
        "metrics of another program",
        others_metrics,
        "/run/metrics.jsonl",
        'got: a first line "{\\"loss\\": 2.5}"',
        "with step, epoch, tokens",
        "move the file away",
        mend=lambda p: (p / "run/metrics.jsonl").rename(p / "theirs.jsonl"),
    ),
    row("a folder in use", held, "/run", "wait for it, stop it"),
    row("a folder that cannot be locked", locked_by_a_folder, "/run", "Is a directory", kind=StoreError),
    row("a file for a folder", lambda p: train(p, output_dir=p.texts), "texts.jsonl", "got: a file", "-o with another"),
    row(
        "a folder in a file", lambda p: train(p, output_dir=p.texts / "run"), "texts.jsonl\n", "got: a file", "-o with"
    ),
    row("a link to nothing", linked("nothing"), "/link", "got: a link to nothing", "-o with another"),
    row("a link to itself", linked("link"), "/link", "got: a link to nothing", "-o with another"),
    row("a long name", lambda p: train(p, output_dir=p / ("a" * 300)), "got: File name too long", "-o with another"),
    row("a long name in a new folder", lambda p: train(p, output_dir=p / "new" / ("a" * 300)), "too long", "-o with"),
    row("a small vocabulary", small_vocabulary, "got: 100", "at least 453", mend=mend_vocabulary),
    row("few positions", few_positions, "max_position_embeddings", "at least ", mend=mend_positions),
    row("another tokenizer", other_tokenizer, "--tokenizer ", "train fresh weights"),
    row("nothing to train", untrained, "0 trained labels", "--strategy seq"),
    row("another strategy", resumed(lambda p: None, strategy="sft"), "got: strategy sft", "wanted: strategy seq"),
    row("another seed", resumed(lambda p: None, seed=1), "epoch_", "got: seed 1", "wanted: seed 0", "with -o"),
    row("another store", another_store, "epoch_", "/out, whose id is ", "the store with id ", "/store", "--data"),
    row("many micro-batches", large_step, "accumulate", "got: 1000000", "at most ", mend=mend_large_step),
    row("a loss that is no number", not_finite, "step ", "gradient norm", "a lower --lr", kind=NonFiniteError),
    point(
        "a file that is gone", resumed(lost("run/epoch_*/training/random.safetensors")), "random.safetensors", "move "
    ),
    point("a damaged file", resumed(grown("run/epoch_*/model.safetensors")), "model.safetensors", "39,609 bytes"),
    point("no marker", resumed(lost("run/epoch_*/training/complete.json")), "got: nothing", "the one before it"),
    point(
        "another marker", resumed(marker(lambda it: it | {"version": 9})), "astrai-checkpoint, version 9", "version 1"
    ),
    point("a marker that is a list", resumed(marker(list)), "TypeError", "version 1"),
    point(
        "a state that is a number", resumed(state(lambda it: 5)), "state.json", "an object", "the checkpoint before it"
    ),
    point("a state without a step", resumed(state(lambda it: it | {"step": None})), "state.json", "no step"),
    row("metrics that cannot be written", no_metrics, "metrics.jsonl", "Is a directory", kind=StoreError),
    point(
        "a state of later",
        resumed(state(lambda it: it | {"version": 9})),
        "astrai-training-state, version 9",
        "the version of AstrAI that wrote",
    ),
    row("a checkpoint that cannot be", in_the_way, "epoch_", "Not a directory", kind=StoreError),
    point("a state of another model", other_optimizer, "weight.exp_avg [3]", "weight [2, 2]"),
    row("a tokenizer elsewhere", file_elsewhere, "manifest.json", "got: ../a", kind=StoreError),
    row("the tokenizer is gone", tokenizer_gone, "tokenizer_config.json", "No such file", kind=StoreError),
    row("the tokenizer is another", tokenizer_other, "SHA-256 44136fa", "copy", kind=StoreError),
]
