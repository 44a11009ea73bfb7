"""Train a byte-level BPE tokenizer: every text can be encoded, every text comes back byte for byte.

The ids of the special tokens are the first ones; then the 256 bytes, then merges by frequency. Numbers are split into
single digits. The same texts give the same tokenizer.
"""

from collections.abc import Iterable

import tokenizers as tk
from tokenizers import decoders, models, pre_tokenizers, trainers

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer.files import DEFAULT_TEMPLATE, TokenizerFiles
from astrai_data.tokenizer.tokenizer import Tokenizer

SPECIAL_TOKENS = {
    "bos_token": "<|bos|>",
    "eos_token": "<|eos|>",
    "pad_token": "<|pad|>",
    "im_start_token": "<|im_start|>",
    "im_end_token": "<|im_end|>",
}
CHATML = """\
{% for message in messages %}
{%- if message['content'] is none %}
{{- raise_exception('this chat template knows no tool calls, and content is null') }}
{%- endif %}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}
{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
{%- else %}
{{- message['content'] + '<|im_end|>' }}
{%- endif %}
{{- '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

# Contractions; a word with at most one mark or space before it; one digit; marks with the line ends after them;
# line ends with the space before them; space, leaving one for the next word. Spelled letter by letter as the
# accelerated backend knows it: an equal pattern in another spelling runs five times slower there.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MAX_TOKEN_LETTERS = 32
_MAX_VOCAB_SIZE = 2**24  # the library takes memory for all ids at once and ends the process if there is not enough


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    *,
    special_tokens: dict[str, str] | None = None,
    chat_template: str | None = CHATML,
    min_frequency: int = 2,
) -> Tokenizer:
    """Train on `texts`, read once.

    Args:
        texts: any number of strings.
        vocab_size: ids in all, special tokens included; fewer come out where the texts have too few pairs.
        special_tokens: attribute name -> string; BOS, EOS, padding and the two ChatML marks by default.
        chat_template: Jinja, or None for a tokenizer without one.
        min_frequency: how often a pair must be seen to become a token.

    Raises:
        TokenizerError: `vocab_size` has no room for the 256 bytes and the special tokens, or is above 2^24.
    """
    special_tokens = SPECIAL_TOKENS if special_tokens is None else special_tokens
    check_vocab_size(vocab_size, special_tokens)
    tokenizer = _untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(special_tokens.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=_MAX_TOKEN_LETTERS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    templates = {} if chat_template is None else {DEFAULT_TEMPLATE: chat_template}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return Tokenizer.from_files(TokenizerFiles(tokenizer.to_str(pretty=True), config, special_tokens, templates))


def check_vocab_size(vocab_size: int, special_tokens: dict[str, str] = SPECIAL_TOKENS) -> None:
    """Raise `TokenizerError` if `vocab_size` has no room for the 256 bytes and the special tokens, or is too large."""
    smallest = 256 + len(special_tokens)
    if vocab_size < smallest:
        wanted = f"at least {smallest}: 256 bytes and {len(special_tokens)} special tokens"
        what, hint = "the vocabulary is too small", "16384 does for a small model, 32768 to 131072 for larger ones"
        raise TokenizerError(what, where="vocab_size", got=vocab_size, wanted=wanted, hint=hint)
    if vocab_size > _MAX_VOCAB_SIZE:
        what, hint = "the vocabulary is too large", "131072 does for large models"
        wanted = f"at most {_MAX_VOCAB_SIZE:,}"
        raise TokenizerError(what, where="vocab_size", got=vocab_size, wanted=wanted, hint=hint)


def _untrained() -> tk.Tokenizer:
    tokenizer = tk.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tk.Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
