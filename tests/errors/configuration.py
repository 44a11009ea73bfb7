"""Configurations of pipelines: files, keys, and what must hold between keys."""

from astrai_data import PipelineConfig
from astrai_data.errors import PipelineConfigError

from .place import CONFIG, Place
from .row import EACH_ITS_OWN, NAMED, WANTED_IS_THE_WAY, Row

KEY_NAMED = {"got": NAMED}
PLAIN = {"try": WANTED_IS_THE_WAY}


def config(**keys):
    """`CONFIG` with other keys, checked as for a run."""
    return lambda place: PipelineConfig.from_dict(CONFIG | keys).check_runnable()


def sections(*given, **keys):
    return config(input={"sections": [{"field": "text", "action": "train"} | section for section in given]}, **keys)


def sources(*given, **keys):
    return config(input={"sources": {"chosen": {"sections": list(given)}}}, **keys)


def file(content: str | bytes):
    """A configuration file of this content, as `preprocess` reads it."""

    def fail(place: Place) -> None:
        path = place.once("pipeline.json", content)
        dry = ["-o", place / "out", "-c", path, "--tokenizer", place.tokenizer, "--dry-run"]
        place.astrai("preprocess", place.texts, *dry)

    return fail


def mend_text(old: str, new: str):
    """Change the file as the message says."""

    def mend(place: Place) -> None:
        path = place / "pipeline.json"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return mend


def mend_unknown_key(place: Place) -> None:
    mend_text("preprocesing", place.told("try"))(place)


def mend_missing_key(place: Place) -> None:
    assert place.told("wanted").startswith("one of train, ")
    mend_text('"field": "text"', '"field": "text", "action": "train"')(place)


VALUE = {"field": "score", "action": "value"}
UNKNOWN = '{"version": 2, "input": {"sections": [{"field": "text", "action": "train"}]}, "preprocesing": {}}'
MISSING = '{"version": 2, "input": {"sections": [{"field": "text"}]}}'
COMMA = '{"version": 2, "input": {"sections": [{"field": "text", "action": "train"},]}}'


def row(name, fail, *says, without=None, mend=None) -> Row:
    return Row(name, fail, PipelineConfigError, says, without or {}, mend)


ROWS = [
    row("no such file", lambda p: PipelineConfig.from_file(p / "pipe.json"), "pipe.json", "nothing", "pretrain-code"),
    row("no such ready-made pipeline", lambda p: PipelineConfig.from_file("pretrian"), "try: pretrain"),
    row("a folder as configuration", lambda p: PipelineConfig.from_file(p.root), "got: a folder"),
    row(
        "a file that may not be read",
        lambda p: PipelineConfig.from_file("/proc/self/mem"),
        "Input/output error",
        "/proc/self/mem",
    ),
    row("a file that is not UTF-8", file(b'{"name": "\xff"}'), "byte 10", r"b'\xff'", "save the file as UTF-8"),
    row("a key twice", file('{"version": 1, "version": 2}'), '"version"', "got: 1 and 2"),
    row("no number", file('{"version": NaN}'), "NaN", "a number, or null"),
    row("a comma too many", file(COMMA), "line 1, column 76", "take out the comma", mend=mend_text("},]", "}]")),
    row("a comment", file('{\n// mine\n"version": 2}'), "line 2", "// mine", "JSON has none"),
    row("a list of keys without quotes", file("{version: 2}"), "line 1, column 2", "{version: 2}", "double quotes"),
    row("brackets without end", file("[" * 200_000), "pipeline.json", "got: 200,000 opening brackets"),
    row("not an object", file("[1, 2]"), "pipeline.json", "got: [1, 2]", "put the keys into"),
    row("an unknown key", file(UNKNOWN), '"preprocesing"', without=KEY_NAMED, mend=mend_unknown_key),
    row("a key without a likeness", config(zzz=1), "wanted: one of $schema, ", "take it out", without=KEY_NAMED),
    row("a key that is no text", lambda p: PipelineConfig.from_dict({5: 6}), "unknown key 5", without=KEY_NAMED),
    row("a missing key", file(MISSING), "input.sections[0].action", "add the key", mend=mend_missing_key),
    row("a wrong value", config(preprocessing={"max_packed_len": 0}), "got: 0", "a number above 0", without=PLAIN),
    row("a wrong choice", config(output={"storage_format": "arow"}), "output.storage_format", "try: arrow"),
    row("a version of the future", config(version=3), "got: 3", "wanted: 1 or 2", without=PLAIN),
    row("a date that is none", config(input={"template_date": "May"}), '"May"', "2024-07-26", without=PLAIN),
    row(
        "two problems",
        config(version=3, nonsense=1),
        "has 2 problems",
        "1. version: wrong value",
        "2. nonsense: unknown key",
        "wanted: 1 or 2",
        without=dict.fromkeys(("where", "got", "wanted", "try"), EACH_ITS_OWN),
    ),
    row("cleaning steps", config(clean=[{"use": "nfc"}]), "clean", "an empty list"),
    row("several outputs", sources(VALUE), "input.sources", "sources chosen", "input.sections"),
    row("no sections", config(input={}), "input.sections", "got: null", '{"field": "text", "action": "train"}'),
    row("nothing is trained", sections({"action": "mask"}), "got: action mask", "drop_untrained: false"),
    row("a value beside others", sources(VALUE, VALUE), "got: 2 sections", "a source of their own"),
    row("a value outside a source", sections(VALUE), "input.sections[0].action", "train, mask or $role"),
    row("a template as value", sources(VALUE | {"template": True}), '"value"', "$role for chats"),
    row("roles of a text", sections({"action": "$role"}), '"$role"', "template: true for chats"),
    row("a prompt without a chat", sections({"generation_prompt": True}), "generation_prompt", "leave it out"),
    row("an end for what is masked", sections({"action": "mask", "append_eos": True}), "append_eos", "leave it out"),
    row(
        "sections and sources",
        config(
            input={"sections": [{"field": "text", "action": "train"}], "sources": {"a": {"sections": [VALUE]}}},
        ),
        "exclude each other",
        "take out sources",
    ),
    row("no text would be kept", config(preprocessing={"min_chars": 9, "max_chars": 5}), "got: 5", "which is 9"),
    row(
        "over-long under a strategy that splits",
        config(preprocessing={"packing_strategy": "concat", "over_long": "drop"}),
        '"drop"',
        "packing_strategy: bfd",
    ),
    row(
        "a cap above the row",
        config(preprocessing={"over_long": "truncate", "max_seq_len": 99, "max_packed_len": 9}),
        "got: 99",
        "leave max_seq_len out",
    ),
    row("an unknown column", config(output={"dtype": {"sequnce": "int32"}}), '"sequnce"', "try: sequence"),
    row("ids of the wrong kind", config(output={"dtype": {"sequence": "float32"}}), '"float32"', "try: auto"),
    row("a field kept twice", config(data={"keep_fields": ["url", "url"]}), '["url", "url"]', 'list "url" once'),
    row(
        "a field that nobody reads",
        config(data={"inputs": [{"path": "a.jsonl", "fields": {"txet": "body"}}]}),
        "data.inputs[0].fields.txet",
        "try: text",
    ),
]
