"""Real tokenizer directories for tests: the acceptance toys C, C+ and C0, and a small byte-level BPE."""

import json
from pathlib import Path

import tokenizers as tk
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

TOY_TEMPLATE = (
    "{% for message in messages %}<{{ message['role'][0] }}>{{ message['content'] }}|{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
CHATML_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_GENERATION_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_SPECIALS = {
    "bos_token": "<|bos|>",
    "eos_token": "<|eos|>",
    "pad_token": "<|pad|>",
    "im_start_token": "<|im_start|>",
    "im_end_token": "<|im_end|>",
}
TRAINING_TEXT = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "A tokenizer turns text into numbers; numbers into text it turns again.",
    "In 1987 there were 365 days, 12 months and 52 weeks, as in most other years.",
    "Über allen Gipfeln ist Ruh, in allen Wipfeln spürest du kaum einen Hauch. 今日は。 Привет, мир!",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))\n",
]


def write_toy_tokenizer(directory: Path, kind: str = "C", *, template: str | None = TOY_TEMPLATE) -> Path:
    """An acceptance toy: a character's id is its code point (below 1,024), `[P]`, `[B]`, `[E]` are 0, 1, 2.

    `kind` is "C", "C+" (the post-processor puts `[B]` in front) or "C0" (no BOS token in the map).
    """
    vocab = {"[P]": 0, "[B]": 1, "[E]": 2} | {chr(point): point for point in range(3, 1024)}
    tokenizer = tk.Tokenizer(models.WordLevel(vocab, unk_token="[P]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(tk.Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["[P]", "[B]", "[E]"])
    if kind == "C+":
        tokenizer.post_processor = processors.TemplateProcessing("[B] $A", special_tokens=[("[B]", 1)])
    specials = {"bos_token": "[B]", "eos_token": "[E]", "pad_token": "[P]"}
    if kind == "C0":
        del specials["bos_token"]
    return write_directory(directory, tokenizer, {"special_tokens": specials, "chat_template": template})


def write_bpe_tokenizer(
    directory: Path,
    vocab_size: int = 512,
    template: str | None = CHATML_TEMPLATE,
    *,
    specials: dict[str, str] | None = None,
) -> Path:
    """A byte-level BPE (GPT-2 pre-tokenizer) trained on `TRAINING_TEXT`; special tokens come first."""
    specials = CHATML_SPECIALS if specials is None else specials
    tokenizer = tk.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        special_tokens=list(specials.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    return write_directory(directory, tokenizer, {"special_tokens": specials, "chat_template": template})


def write_directory(directory: Path, tokenizer: tk.Tokenizer, config: dict) -> Path:
    """Write `tokenizer.json` and `tokenizer_config.json` into `directory`, which is made if absent."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False))
    return directory
