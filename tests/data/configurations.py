"""Any configuration: hypothesis strategies over every key of a pipeline, and `Case`s to run."""

import json
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from astrai_data import PipelineConfig

from .odd_sources import NAMES, ROLES, Source, plain_sources, sources, usually

TOKENIZERS = ("bpe", "bpe with marks", "toy", "toy without BOS", "toy with prefix and suffix")


@dataclass(frozen=True)
class Case:
    """A configuration, the tokenizer to run it with, and its inputs."""

    config: dict
    tokenizer: str
    sources: list[Source]

    def written(self, folder: Path, **changes: object) -> PipelineConfig:
        """The configuration with the inputs, written below `folder`; `changes` by key path, dots as `__`."""
        config = json.loads(json.dumps(self.config))
        config.setdefault("data", {})["inputs"] = [s.write(folder, i) for i, s in enumerate(self.sources)]
        changes = {"tokenizer": {"backend": "tokenizers"}} | changes
        return PipelineConfig.from_dict(config).with_values({k.replace("__", "."): v for k, v in changes.items()})


def _optional(**keys: st.SearchStrategy) -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries({}, optional=keys)


TEXT_SECTIONS = st.fixed_dictionaries(
    {
        "field": usually(st.sampled_from(["text", "reply", "eos"]), st.just("messages")),
        "action": st.sampled_from(["train", "train", "mask"]),
    },
    optional={"add_special_tokens": st.sampled_from([None, True, False]), "append_eos": st.booleans()},
).map(lambda s: s | ({"append_eos": False} if s["action"] == "mask" and "append_eos" in s else {}))
CHAT_SECTIONS = st.fixed_dictionaries(
    {
        "field": usually(st.just("messages"), st.just("text")),
        "action": st.sampled_from(["$role", "$role", "train", "mask"]),
        "template": st.just(True),
    },
    optional={"generation_prompt": st.booleans(), "add_special_tokens": st.none()},
)
INPUT = _optional(
    mask_scope=st.sampled_from(["message", "completion"]),
    train_on=st.sampled_from(["all", "last"]),
    special_tokens=st.sampled_from(["parse", "text"]),
    template_date=st.dates().map(str),
)
PREPROCESSING = _optional(
    max_seq_len=st.one_of(st.none(), st.integers(1, 40)),
    min_chars=st.integers(0, 12),
    max_chars=st.integers(12, 600),
    max_items=st.one_of(st.none(), st.integers(0, 6)),
    batch_size=st.integers(1, 300),
    packing_strategy=st.sampled_from(["simple", "bfd", "bfd_split", "concat"]),
    max_packed_len=st.one_of(st.integers(1, 12), st.integers(12, 300)),
    over_long=st.sampled_from(["split", "truncate", "drop"]),
    truncation_mode=st.sampled_from(["keep_start", "keep_end"]),
    drop_untrained=st.booleans(),
)
OUTPUT = _optional(
    domain_key=st.sampled_from(["kind", "kind", "text"]),
    storage_format=st.sampled_from(["arrow", "bin"]),
    max_tokens_per_shard=st.one_of(st.integers(1, 60), st.integers(60, 2000)),
    dtype=_optional(
        sequence=st.sampled_from(["auto", "uint16", "int16", "int32", "int64"]),
        loss_mask=st.sampled_from(["auto", "bool", "uint8"]),
        position_ids=st.sampled_from(["auto", "int32"]),
    ),
    position_ids_mode=st.sampled_from(["none", "doc_reset", "continuous"]),
)
RUN = st.fixed_dictionaries(
    {"max_reject_ratio": usually(st.just(1.0), st.floats(0, 1))},
    optional={
        "seed": st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1)),
        "shuffle_rows": st.booleans(),
        "validation_fraction": st.floats(0, 0.9),
        "min_rejects": st.integers(0, 6),
    },
)
DATA = _optional(
    keep_fields=st.lists(st.sampled_from(NAMES), unique=True, max_size=3),
    max_record_bytes=usually(st.just(1 << 20), st.integers(1, 300)),
)


@st.composite
def configurations(draw) -> dict:
    """A valid configuration, without inputs."""
    section = st.one_of(TEXT_SECTIONS, TEXT_SECTIONS, CHAT_SECTIONS)
    config = {
        "version": draw(st.sampled_from([1, 2])),
        "input": draw(INPUT) | {"sections": draw(st.lists(section, min_size=1, max_size=3))},
        "preprocessing": draw(PREPROCESSING),
        "output": draw(OUTPUT),
        "run": draw(RUN),
        "data": draw(DATA),
        "mask_default": draw(st.sampled_from(["mask", "mask", "train"])),
        "mask": draw(st.dictionaries(st.sampled_from(ROLES), st.sampled_from(["train", "mask"]), max_size=4)),
    }
    config |= draw(_optional(name=st.just("any"), clean=st.just([])) | _optional(**{"$schema": st.just("s")}))
    if draw(st.integers(0, 3)):
        config["mask"]["assistant"] = "train"
    if not _trains(config):
        config["preprocessing"]["drop_untrained"] = False
    return config | {"preprocessing": _agreeing(config["preprocessing"], config["version"])}


def _agreeing(keys: dict, version: int) -> dict:
    """Without what the rules between keys forbid."""
    if version == 1:
        keys.setdefault("min_chars", min(50, keys.get("max_chars", 50)))
    if keys.get("packing_strategy") in ("bfd_split", "concat") and "over_long" in keys:
        keys["over_long"] = "split"
    if keys.get("over_long") == "truncate" and keys.get("max_seq_len"):
        keys["max_seq_len"] = min(keys["max_seq_len"], keys.get("max_packed_len", 8192))
    return keys


def _trains(config: dict) -> bool:
    by_role = "train" in (config["mask_default"], *config["mask"].values())
    return any(s["action"] == "train" or (s["action"] == "$role" and by_role) for s in config["input"]["sections"])


@st.composite
def cases(draw) -> Case:
    """A configuration with one to five inputs."""
    config = draw(configurations())
    read = [section["field"] for section in config["input"]["sections"]] + config["data"].get("keep_fields", [])
    read += [config["output"]["domain_key"]] if "domain_key" in config["output"] else []
    files = draw(st.lists(usually(sources(read), plain_sources()), min_size=1, max_size=4))
    files = draw(usually(st.just([*files, draw(plain_sources())]), st.just(files)))
    return Case(config, draw(st.sampled_from(TOKENIZERS)), files)
