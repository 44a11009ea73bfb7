"""The whole line: a chat pipeline's store, a model trained on it, its server; the same ids of a conversation."""

import torch

from astrai_data import TokenStore
from tests.serve.serving import served
from tests.train.small_runs import make_store, run

CONVERSATIONS = [
    [{"role": "user", "content": "add 3 and 3"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "日本 😸 <|im_end|> and <|bos|>"}],
]
CONFIG = {
    "version": 2,
    "input": {"sections": [{"field": "messages", "action": "train", "template": True, "generation_prompt": True}]},
    "preprocessing": {"max_packed_len": 96},
}
SETTINGS = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


def documents(store: TokenStore) -> list[list[int]]:
    found = []
    for index in range(store.num_rows):
        row = store.row(index)
        found += torch.tensor(row.sequence.tolist()).split(row.segment_lengths.tolist())
    return sorted(ids.tolist() for ids in found)


def test_what_a_pipeline_stored_is_what_the_server_of_its_model_is_asked(tmp_path):
    store = make_store(tmp_path / "store", CONFIG, [{"messages": messages} for messages in CONVERSATIONS])
    run(tmp_path, store, max_steps=2)
    stored = documents(TokenStore.open(store))
    assert len(stored) == len(CONVERSATIONS)
    with served(tmp_path / "run", "--port", 0) as server:
        by_chat, by_ids = [], []
        for messages in CONVERSATIONS:
            body = server.post("chat/completions", messages=messages, **SETTINGS).json()
            by_chat.append((body["usage"]["prompt_tokens"], body["choices"][0]["message"]["content"]))
        for ids in stored:
            body = server.post("completions", prompt=ids, **SETTINGS).json()
            by_ids.append((len(ids), body["choices"][0]["text"]))
    assert sorted(by_chat) == sorted(by_ids)
    assert len({text for _, text in by_chat}) == 2
