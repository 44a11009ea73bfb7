"""`bos_token`, `eos_token_id` and the like: names of special tokens as attributes, and the ids that end an answer."""

from difflib import get_close_matches

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer.chat_template import ChatTemplate
from astrai_data.tokenizer.codec import Codec
from astrai_data.tokenizer.special_text import SpecialStrings

STANDARD_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_ANSWER = "\u2e2eanswer\u2e2e"
_TURNS = [{"role": "user", "content": "question"}, {"role": "assistant", "content": _ANSWER}]


def look_up(name: str, special_tokens: dict[str, str], ids: dict[str, int]) -> str | int | None:
    """The string of `<name>` or the id of `<name>_id`.

    An id is None where the string is not in the vocabulary, and for the standard names where there is no such token.

    Raises:
        AttributeError: no special token has this name.
    """
    if name in special_tokens:
        return special_tokens[name]
    token = name.removesuffix("_id")
    if token != name and (token in special_tokens or token in STANDARD_NAMES):
        return ids.get(special_tokens.get(token))
    known = [*special_tokens, *(f"{known}_id" for known in special_tokens)]
    near = get_close_matches(name, known, 1)
    raise AttributeError(f"the tokenizer has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def find_stop_ids(config: dict, codec: Codec, template: ChatTemplate | None) -> list[int]:
    """Ids that end an answer: `stop_tokens` of the configuration file if it is there, else EOS and end of turn.

    The end of turn is `eot_token` of the special tokens, and what the template puts right after an answer.
    """
    stated, vocabulary = config.get("stop_tokens"), codec.vocabulary
    if isinstance(stated, list):
        tokens = [token for token in stated if isinstance(token, str)]
    else:
        named = (vocabulary.named.get(name) for name in ("eos_token", "eot_token"))
        tokens = dict.fromkeys([*named, _end_of_turn(template, codec.strings)])
    return [vocabulary.ids[token] for token in tokens if token in vocabulary.ids]


def _end_of_turn(template: ChatTemplate | None, strings: SpecialStrings) -> str | None:
    if template is None:
        return None
    try:
        _, found, after = template.render(_TURNS).partition(_ANSWER)
    except TokenizerError:
        return None
    chunks = strings.split(after) if found else []
    return chunks[1] if len(chunks) > 1 and not chunks[0].strip() else None
