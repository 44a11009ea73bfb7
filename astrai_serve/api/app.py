"""The routes."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response

from astrai_serve.api.answers import Answers, unless_gone
from astrai_serve.api.body_limit import BodyLimit
from astrai_serve.api.errors import add_error_handlers, answer
from astrai_serve.api.event_stream import EventStream
from astrai_serve.api.fields import ChatRequest, CompletionRequest, GenerationFields
from astrai_serve.api.openai import CHAT, COMPLETION, Form, Writer
from astrai_serve.api.service import Service
from astrai_serve.errors import UnknownRouteError

T = TypeVar("T")
NUM_TOKENIZING = 2
"""Requests that are rendered and tokenized at a time; each such thread takes turns with the event loop, and a dozen of
them would hold up /health and every stream."""
FAILED: dict[int | str, dict[str, Any]] = {"4XX": {"description": "OpenAI's object: error.message, type, param, code"}}


def create_app(service: Service) -> FastAPI:
    """The application for one served model; its state is the service."""
    # No pages of FastAPI's, which load scripts from elsewhere; and no redirects, at which some clients lose the body.
    app = FastAPI(title="AstrAI", docs_url=None, redoc_url=None, redirect_slashes=False, responses=FAILED)
    app.add_middleware(BodyLimit)
    add_error_handlers(app)
    _add_status_routes(app, service)
    turns = asyncio.Semaphore(NUM_TOKENIZING)

    async def tokenized(work: Callable[[], T]) -> T:
        """The result of rendering and tokenizing, on a thread: other streams must not wait for it."""
        async with turns:
            return await asyncio.to_thread(work)

    @app.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        service.check_model(body.model)
        service.engine.check_queue(body.n)
        ids = await tokenized(partial(service.chat_ids, body.conversation()))
        answers = Answers(service.engine, [ids], body.params(), body.n, prompt_field="messages")
        return await _respond(service, CHAT, request, body, answers)

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        service.check_model(body.model)
        prompts = body.prompts()
        service.engine.check_queue(len(prompts) * body.n)  # before work is done that a full queue would throw away
        ids = await tokenized(lambda: [service.text_ids(p) if isinstance(p, str) else p for p in prompts])
        return await _respond(service, COMPLETION, request, body, Answers(service.engine, ids, body.params(), body.n))

    return app


async def _respond(
    service: Service, form: Form, request: Request, body: GenerationFields, answers: Answers
) -> Response:
    request.state.answers = answers  # for the log
    writer = Writer(form, service.name, answers)
    if body.stream:
        return EventStream(writer.pieces(body.stream_options.include_usage), answers)
    try:
        return answer(await unless_gone(request, writer.whole()))
    finally:
        answers.cancel()


def _add_status_routes(app: FastAPI, service: Service) -> None:
    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> Response:
        """200 while the engine's loop runs, 503 when it has died or is stuck. A long queue is no illness."""
        is_healthy = service.is_healthy
        state = {"status": "ok" if is_healthy else "failing", "model_loaded": True, "model": service.name}
        return answer(state | _load(service), 200 if is_healthy else 503)

    @app.head("/stats", include_in_schema=False)
    @app.get("/stats")
    async def stats() -> Response:
        """Requests and tokens since the start, and what runs and waits now."""
        scheduler, engine = service.engine.scheduler, service.engine
        return answer(
            {
                "total_tasks": engine.num_submitted,
                "total_tokens": engine.num_generated,
                "active_tasks": len(scheduler.running),
                "waiting_queue": len(scheduler.waiting),
            }
        )

    card = partial(_card, service)

    @app.head("/v1/models", include_in_schema=False)
    @app.get("/v1/models")
    async def models() -> Response:
        return answer({"object": "list", "data": [card()]})

    @app.head("/v1/models/{name:path}", include_in_schema=False)
    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        if not name:
            raise HTTPException(UnknownRouteError.status)
        service.check_model(name)
        return answer(card())


def _load(service: Service) -> dict[str, object]:
    engine = service.engine
    return {
        "running": len(engine.scheduler.running),
        "waiting": len(engine.scheduler.waiting),
        "free_pages": engine.pool.num_free,
        "num_pages": engine.pool.num_pages,
        "answers_independent_of_batch": engine.runner.row_counts.same_bits,
    }


def _card(service: Service) -> dict[str, object]:
    return {
        "id": service.name,
        "object": "model",
        "created": service.created,
        "owned_by": "astrai",
        "context_length": service.engine.context_length,
    }
