"""A listening server: binds first, loads after, says when it is ready, and ends within seconds when asked to."""

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import uvicorn

from astrai_serve.api.app import create_app
from astrai_serve.api.cross_origin import CrossOrigin, check_origins
from astrai_serve.api.malformed import JsonRefusals
from astrai_serve.api.request_log import LineWriter, RequestLog
from astrai_serve.api.service import Service
from astrai_serve.errors import PortInUseError, ServeError

GRACE_S = 2.0
"""How long answers in the making may go on after a signal; then they end with an error."""
LAST_WORDS_S = 1.0
"""What they then have to say so."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free port. Clients that connect now wait until the model is loaded.

    Raises:
        PortInUseError: somebody else has the port.
        ServeError: no such address on this machine, or no right to the port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen()  # two bound sockets may share a port until one listens, and then both have loaded a model
    except UnicodeError:  # of getaddrinfo, for a name that no host can have
        raise _not_ours(host, port, "no name of a host") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _in_use(host, port) from None
        raise _not_ours(host, port, error.strerror) from None
    return sock


def _not_ours(host: str, port: int, got: str) -> ServeError:
    what, wanted = "the server cannot listen", "an address of this machine and a port that you may use"
    hint = "--host 127.0.0.1 for this machine alone or 0.0.0.0 for all; --port from 1024 on"
    return ServeError(what, where=f"{host}:{port}", got=got, wanted=wanted, hint=hint)


def _in_use(host: str, port: int) -> PortInUseError:
    hint = f"--port {port + 1 if port < 65535 else 0}, or --port 0 for any free one"
    what, got, wanted = "the port is in use", "somebody who listens there", "a port nobody listens on"
    return PortInUseError(what, where=f"{host}:{port}", got=got, wanted=wanted, hint=hint)


@dataclass(frozen=True)
class ServerOptions:
    """What a user may choose.

    Attributes:
        origins: whose web pages may ask.
        quiet: no line for a request.
        verbose: a line for those who look whether the server is well, too.

    Raises:
        ServeError: an origin is none.
    """

    origins: tuple[str, ...] = ()
    quiet: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        check_origins(self.origins)


def run_server(
    service: Service, sock: socket.socket, announce: Callable[[str], None], options: ServerOptions | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; `announce` is told the URL when requests are answered.

    Raises:
        KeyboardInterrupt: it was SIGINT.
    """
    options, lines = options or ServerOptions(), LineWriter()
    app = CrossOrigin(create_app(service), options.origins)
    config = uvicorn.Config(
        app if options.quiet else RequestLog(app, lines.write, with_probes=options.verbose),
        log_level="info" if options.verbose else "warning",
        access_log=False,
        http=JsonRefusals,
        timeout_graceful_shutdown=GRACE_S + LAST_WORDS_S,
        log_config=None,
        lifespan="off",
        ws="none",
    )
    # uvicorn raises the signal again at its end. SIGINT then is a KeyboardInterrupt, or made one where that is lost;
    # a server that was asked to terminate and did has done what it should.
    signal.signal(signal.SIGTERM, lambda signum, frame: None)
    logging.getLogger("uvicorn.error").addFilter(_is_no_farewell)
    try:
        server = _Server(config, service, announce)
        server.run(sockets=[sock])
        if server.interrupted:
            raise KeyboardInterrupt
    finally:
        service.engine.shutdown()
        lines.close()


def _is_no_farewell(record: logging.LogRecord) -> bool:
    """Leave out what a second Ctrl-C cancels: uvicorn tells each with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class _Server(uvicorn.Server):
    """uvicorn's, with a word at the start and a limit to the end."""

    def __init__(self, config: uvicorn.Config, service: Service, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._service, self._announce = service, announce
        self.interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, or end at once."""
        self.interrupted |= sig == signal.SIGINT
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say where."""
        await super().startup(sockets)
        if sockets and not self.should_exit:
            host, port = sockets[0].getsockname()[:2]
            self._announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing new, and end what is in work after `GRACE_S`."""
        last_words = asyncio.get_running_loop().call_later(GRACE_S, self._service.engine.stop)
        try:
            await super().shutdown(sockets)
        finally:
            last_words.cancel()
            self._service.engine.stop()  # for whom a second Ctrl-C cuts off
