"""One tokenizer: `tokenizer.json`, its special tokens and its chat templates.

All encoding goes through the backend in batches, and the post-processor is never run: what it would put around a
sequence is found out once (`post_prefix`, `post_suffix`). Ids travel as NumPy buffers. A tokenizer pickles as the
text of its files and opens its backend again on the other side.
"""

from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from astrai_data.ragged import Ragged
from astrai_data.tokenizer.backends import SpecialTokens
from astrai_data.tokenizer.chat import ChatEncoder, ChatOptions, EncodedChat, accepted, apply_to_all
from astrai_data.tokenizer.chat_template import TEMPLATE_DATE, ChatTemplate
from astrai_data.tokenizer.codec import Codec
from astrai_data.tokenizer.controls import raise_refused
from astrai_data.tokenizer.conversation import ChatRefusal
from astrai_data.tokenizer.files import TokenizerFiles, in_folder, read_files, write_files
from astrai_data.tokenizer.special_names import find_stop_ids, look_up
from astrai_data.tokenizer.template_set import TemplateSet, not_loaded


class Tokenizer:
    """Encodes and decodes text, renders and encodes conversations.

    Special tokens are attributes: `bos_token` is the string, `bos_token_id` the id (None if the tokenizer has none);
    a name that is neither mapped nor standard is an `AttributeError`.

    Args:
        path: a tokenizer directory, or a training run's; None makes an empty tokenizer that only takes a template.
        special_tokens: attribute name -> token string; the directory's own win.
        chat_template: used where the directory has none.
        backend: `tokenizers` or `fastokens`.

    Raises:
        TokenizerNotFoundError: the directory has no `tokenizer.json`.
        TokenizerError: the files or the backend's name are not right.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        special_tokens: dict[str, str] | None = None,
        chat_template: "str | ChatTemplate | None" = None,
        *,
        backend: str = "tokenizers",
    ) -> None:
        files = TokenizerFiles("") if path is None else read_files(Path(path))
        with in_folder(path):
            self._fill(files.with_special_tokens(special_tokens or {}), backend)
        if chat_template is not None and self.chat_template is None:
            self.chat_template = chat_template

    @classmethod
    def from_pretrained(cls, directory: str | Path, backend: str = "tokenizers") -> "Tokenizer":
        """Open a tokenizer directory, or that of the newest checkpoint in a training run's folder."""
        return cls(directory, backend=backend)

    @classmethod
    def from_files(cls, files: TokenizerFiles, backend: str = "tokenizers") -> "Tokenizer":
        """A tokenizer from what would stand in its directory."""
        tokenizer = cls()
        tokenizer._fill(files, backend)
        return tokenizer

    def _fill(self, files: TokenizerFiles, backend: str) -> None:
        self._files = files
        self._codec = Codec(files.tokenizer_json, files.special_tokens, backend) if files.tokenizer_json else None
        if self._codec is not None:
            _ = self._codec.vocabulary, self._codec.backend  # a tokenizer that cannot be used fails here
        self._templates = TemplateSet.from_texts(files.templates, self.special_tokens)

    def save_pretrained(self, directory: str | Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`; what else the latter held is kept."""
        _ = self._loaded
        write_files(Path(directory), replace(self._files, templates=self._templates.texts))

    def with_backend(self, name: str) -> "Tokenizer":
        """The same tokenizer over another backend."""
        other = Tokenizer()
        other._files, other._codec = self._files, self._loaded.with_backend(name)
        _ = other._codec.backend  # one that cannot be used fails here
        other._templates = TemplateSet(dict(self._templates.templates), self.special_tokens)
        return other

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return look_up(name, self._files.special_tokens, self._ids)

    @property
    def _loaded(self) -> Codec:
        if self._codec is None:
            raise not_loaded()
        return self._codec

    @property
    def _ids(self) -> dict[str, int]:
        return self._codec.vocabulary.ids if self._codec else {}

    def __len__(self) -> int:
        return len(self._ids)

    vocab_size = property(__len__, doc="int: number of tokens, added ones included; 0 before loading.")
    backend = property(attrgetter("_loaded.backend_name"), doc="str: the backend's name.")
    max_id = property(attrgetter("_loaded.vocabulary.max_id"), doc="int: the largest id.")
    is_byte_level = property(attrgetter("_loaded.vocabulary.is_byte_level"), doc="bool: tokens stand for fixed bytes.")
    has_normalizer = property(attrgetter("_loaded.vocabulary.has_normalizer"), doc="bool: text is changed at first.")
    added_tokens = property(attrgetter("_loaded.vocabulary.added_strings"), doc="list[str]: cut out of text at first.")
    token_bytes = property(attrgetter("_loaded.token_bytes"), doc="Ragged uint8, one row an id (byte-level only).")
    post_prefix = property(attrgetter("_loaded.post_prefix"), doc="tuple[int, ...]: ids put in front of a sequence.")
    post_suffix = property(attrgetter("_loaded.post_suffix"), doc="tuple[int, ...]: ids put behind a sequence.")
    missing_tokens = property(attrgetter("_loaded.missing_tokens"), doc="dict: what is named and in no vocabulary.")
    ids_sha256 = property(attrgetter("_loaded.ids_sha256"), doc="str: hash of what decides the ids.")
    template_sha256 = property(attrgetter("_templates.sha256"), doc="str: hash of the chat templates' text.")

    @property
    def special_tokens(self) -> dict[str, str]:
        """Attribute name -> token string, a copy; without those that are not in the vocabulary."""
        return dict(self._codec.vocabulary.named if self._codec else self._files.special_tokens)

    @property
    def stop_ids(self) -> list[int]:
        """Ids that end an answer: EOS and end of turn, or the configuration file's `stop_tokens`; [] before loading."""
        return find_stop_ids(self._files.config, self._codec, self._templates.choose(None)) if self._codec else []

    def id_to_token(self, token_id: int) -> str | None:
        """The token's string as the vocabulary spells it; None if the id is not used."""
        return self._loaded.vocabulary.token(token_id)

    def token_to_id(self, token: str) -> int | None:
        """The id of a token string; None if it is not in the vocabulary."""
        return self._ids.get(token)

    def encode(
        self,
        text: str | list,
        out_ids: bool = True,
        is_pretokenized: bool = False,
        add_special_tokens: bool = True,
    ) -> list:
        """Ids (or, without `out_ids`, token strings) of a text, or a list of them for a list of texts.

        `is_pretokenized`: a text is a list of words. `add_special_tokens`: the post-processor's ids stand around it.
        """
        return self._loaded.encode(text, out_ids, is_pretokenized, add_special_tokens)

    def encode_batch(
        self, texts: list[str], *, special_tokens: SpecialTokens = "parse"
    ) -> tuple[np.ndarray, np.ndarray]:
        """All texts in one call to the backend: ids (int32 [total]) and offsets (int64 [n + 1]), nothing added.

        Special-token strings in the texts are tokens (`parse`) or plain text (`text`).

        Raises:
            TokenizerError: a text is none, or cannot be encoded as plain text; `encode_texts` tells which ones.
        """
        rows, refused = self.encode_texts(texts, special_tokens=special_tokens)
        raise_refused(refused)
        return rows.values, rows.offsets

    def encode_texts(
        self, texts: list[str], *, special_tokens: SpecialTokens = "parse"
    ) -> tuple[Ragged, dict[int, str]]:
        """`encode_batch` that goes on: (ids int32, one row a text; number of each refused text -> why, its row empty).

        With `text`, a text is refused in which this tokenizer makes a special token of plain text all the same.
        """
        return self._loaded.encode_texts(texts, special_tokens)

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of one sequence of ids."""
        return self.decode_batch(Ragged.from_rows([ids], np.int32), skip_special_tokens=skip_special_tokens)[0]

    def decode_batch(self, rows: Ragged, *, skip_special_tokens: bool = False) -> list[str]:
        """The text of each row of ids; for byte-level tokenizers without Python work per token."""
        return self._loaded.decode_batch(rows, skip_special_tokens)

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The chat template; set it to a `ChatTemplate`, to Jinja source, or to None."""
        return self._templates.default

    @chat_template.setter
    def chat_template(self, value: ChatTemplate | str | None) -> None:
        self._templates.set_default(value)

    def apply_chat_template(
        self,
        messages: list,
        system_prompt: str | None = None,
        tokenize: bool = True,
        add_generation_prompt: bool = True,
        *,
        template_date: str = TEMPLATE_DATE,
        tools: list | None = None,
        **variables,
    ) -> str | list:
        """A conversation, or a list of them, as text or (`tokenize`) as lists of ids, the ids of `encode_chat`.

        A `system_prompt` that is not empty is put in front as a system message and is a render variable.

        Raises:
            TokenizerError: there is no template, or a conversation is refused.
        """
        if system_prompt is not None:
            variables["system_prompt"] = system_prompt
        options = ChatOptions(add_generation_prompt=add_generation_prompt, allow_empty=True)
        encoder = self._encoder(options, template_date, tools, variables)
        return apply_to_all(encoder, messages, system_prompt, tokenize)

    def encode_chats(
        self,
        conversations: list[list[dict]],
        *,
        template_date: str = TEMPLATE_DATE,
        tools: list | None = None,
        **options,
    ) -> list[EncodedChat | ChatRefusal]:
        """Encode conversations, all in one call to the backend; one result each, in order.

        Args:
            conversations: lists of messages with `role` and `content`.
            template_date: the date that the template sees.
            tools: tool descriptions for the template.
            options: fields of `ChatOptions`: `roles`, `scope`, `train_on`, `add_bos`, `add_generation_prompt`,
                `special_tokens`.

        Raises:
            TokenizerError: no template, a template that is not Jinja, an unknown option's value.
        """
        return self._encoder(ChatOptions(**options), template_date, tools, {}).encode(conversations)

    def encode_chat(self, messages: list[dict], **options) -> EncodedChat:
        """`encode_chats` for one conversation.

        Raises:
            TokenizerError: as there, or the conversation is refused.
        """
        return accepted(self.encode_chats([messages], **options)[0])

    def _encoder(self, options: ChatOptions, template_date: str, tools: list | None, variables: dict) -> ChatEncoder:
        template = self._templates.require(tools)
        # Published templates test `tools is not none` and are written for callers that always pass both.
        scope = template.scope(template_date, {"tools": tools or None, "documents": None, **variables})
        return ChatEncoder(template, scope, options, self._loaded.aligner, self._loaded.strings, self.bos_token_id)
