"""What a request may hold. Null counts as absent; an unknown field is an error, and so is one we cannot honour yet."""

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from astrai_data.tokenizer.conversation import TEXT_PART, ContentPartError, join_parts
from astrai_serve.engine import SamplingParams
from astrai_serve.engine.sampling_params import MAX_SEED
from astrai_serve.errors import RequestError

MAX_CHOICES = 128
MAX_STOPS = 16
MAX_STOP_IDS = 1024
MAX_SHOWN = 80
DEFAULT_CHAT_TOKENS = 2048
DEFAULT_COMPLETION_TOKENS = 16

Penalty = Annotated[float, Field(ge=-2, le=2)]


class StreamOptions(BaseModel):
    """Of a streamed answer."""

    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class GenerationFields(BaseModel):
    """Fields that both routes share. `LATER` lists what is not there yet, with the values that ask for nothing."""

    model_config = ConfigDict(extra="forbid", strict=True)
    LATER: ClassVar[dict[str, tuple]] = {}

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=1)] = 50
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    rep_window: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    stop: Any = ()
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MAX_STOP_IDS)] = []
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    # Labels of the client's own, which by their definition change no answer.
    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _tidy(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        for name, harmless in cls.LATER.items():
            if raw.get(name) is not None and raw[name] not in harmless:
                got, wanted = _short(raw[name]), " or ".join(["null", *map(json.dumps, harmless)])
                what, hint = f"{name} is not supported yet", "leave it out"
                raise RequestError(what, param=name, got=got, wanted=wanted, hint=hint)
        return {
            name: value
            for name, value in raw.items()
            if name not in cls.LATER and (value is not None or name == "max_tokens")
        }

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "stream_options" in self.model_fields_set and not self.stream:
            what, hint = "stream_options belongs to a streamed answer", "leave it out, or ask with stream: true"
            got, wanted = "stream: false", "stream: true"
            raise RequestError(what, param="stream_options", got=got, wanted=wanted, hint=hint)
        return self

    def sampling_params(self, max_tokens: int | None) -> SamplingParams:
        """The engine's settings."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
            rep_window=self.rep_window,
            max_tokens=max_tokens,
            seed=self.seed,
            stop=_stops(self.stop),
            stop_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
        )


class ChatRequest(GenerationFields):
    """POST /v1/chat/completions."""

    LATER: ClassVar[dict[str, tuple]] = {
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (True, False),
        "functions": ([],),
        "function_call": ("none", "auto"),
        "response_format": ({"type": "text"},),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "logit_bias": ({},),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "reasoning_effort": ("none",),
        "verbosity": (),
        "web_search_options": (),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "moderation": (),
        "prompt_cache_options": (),
        "prompt_cache_retention": (),
    }

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None

    def conversation(self) -> list[dict[str, Any]]:
        """The messages, lists of text parts joined."""
        return [_with_plain_content(index, message) for index, message in enumerate(self.messages)]

    def params(self) -> SamplingParams:
        """The engine's settings."""
        if self.max_completion_tokens is not None:
            return self.sampling_params(self.max_completion_tokens)
        is_given = "max_tokens" in self.model_fields_set
        return self.sampling_params(self.max_tokens if is_given else DEFAULT_CHAT_TOKENS)


class CompletionRequest(GenerationFields):
    """POST /v1/completions."""

    LATER: ClassVar[dict[str, tuple]] = {
        "best_of": (1,),
        "echo": (False,),
        "suffix": ("",),
        "logprobs": (),
        "logit_bias": ({},),
    }

    prompt: Any

    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts, one or several, all texts or all ids."""
        prompt = self.prompt
        prompts = prompt if isinstance(prompt, list) and not _are(int, prompt) else [prompt]
        if prompts and (_are(str, prompts) or all(isinstance(one, list) and _are(int, one) for one in prompts)):
            return prompts
        wanted = "a text, a list of ids, or a list of either"
        what, hint = "prompt is of the wrong kind", 'such as "Once upon a time", or [41, 7]'
        raise RequestError(what, param="prompt", got=_short(prompt), wanted=wanted, hint=hint)

    def params(self) -> SamplingParams:
        """The engine's settings."""
        is_given = "max_tokens" in self.model_fields_set
        return self.sampling_params(self.max_tokens if is_given else DEFAULT_COMPLETION_TOKENS)


def _stops(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else list(stop) if isinstance(stop, list | tuple) else [stop]
    if not _are(str, stops) or len(stops) > MAX_STOPS:
        wanted = f"a text, or a list of at most {MAX_STOPS}"
        what, hint = "stop is of the wrong kind", "such as ['END']; ids go into stop_token_ids"
        raise RequestError(what, param="stop", got=_short(stop), wanted=wanted, hint=hint)
    return tuple(stops)


def _are(kind: type, values: list) -> bool:
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


def _short(value: Any) -> str:
    return repr(value)[:MAX_SHOWN]


def _with_plain_content(index: int, message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    try:
        return {**message, "content": join_parts(content)}
    except ContentPartError as error:
        where, hint = f"messages.{index}.content.{error.place}", "leave the part out, or say in words what is in it"
        told = {"got": error.got, "wanted": TEXT_PART, "hint": hint}
        raise RequestError("only text parts can be read", param=where, **told) from None
