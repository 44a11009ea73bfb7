"""Command lines that several tests give."""


def preprocess(root, store, **changed) -> list:
    given = {"input": root / "in.jsonl", "-c": root / "pipeline.json", "--tokenizer": root / "tok"} | changed
    source = given.pop("input")
    return ["preprocess", source, "-o", store, *(word for pair in given.items() for word in pair)]
