"""Errors of serving that a user or a client can mend.

`RequestError` and its kin carry what an HTTP answer needs: the status, OpenAI's `code` and the field at fault.
"""

from astrai_data.errors import AstraiError


class ServeError(AstraiError):
    """A server or an engine that cannot start or go on."""


class PortInUseError(ServeError):
    """Somebody else listens where the server was to listen."""


class RequestError(ServeError, ValueError):
    """A request that cannot be served as it is.

    Attributes:
        status: of the HTTP answer.
        code: OpenAI's word for the kind of error.
        param: the field of the request that is at fault.
    """

    status = 400
    code = "invalid_request"

    def __init__(self, what: str, *, param: str | None = None, **details: object) -> None:
        super().__init__(what, **{"where": param} | details)
        self.param = param


class ContextLengthError(RequestError):
    """A prompt that does not fit the context."""

    code = "context_length_exceeded"


class UnknownModelError(RequestError):
    """A request for a model that is not served here."""

    status, code = 404, "model_not_found"


class UnknownRouteError(RequestError):
    """A request for a path that is not served."""

    status, code = 404, "unknown_url"


class WrongMethodError(RequestError):
    """A request with a method that its path does not take."""

    status, code = 405, "method_not_supported"


class NotHttpError(RequestError):
    """Bytes that are no request of HTTP, or one that is larger than is read."""

    code = "invalid_http"


class OriginError(RequestError):
    """A web page asks whether it may ask, and may not."""

    status, code = 403, "origin_not_allowed"


class BodyTooLargeError(RequestError):
    """A body with more bytes than are read."""

    status, code = 413, "body_too_large"


class QueueFullError(RequestError):
    """More requests are waiting than the queue takes."""

    status, code = 429, "queue_full"


class EngineStoppedError(RequestError):
    """The engine takes no more work: it is being shut down, or its loop has died."""

    status, code = 503, "engine_stopped"


class GenerationError(ServeError):
    """A generation that failed on our side of the line."""
