"""Bytes that are no HTTP request: uvicorn refuses them itself, in plain text; here in OpenAI's form, as all errors."""

import sys
from contextlib import suppress

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from astrai_serve.api import refusals
from astrai_serve.api.errors import error_body


class JsonRefusals(H11Protocol):
    """uvicorn's protocol on h11, with another answer to what h11 cannot read."""

    def send_400_response(self, msg: str) -> None:
        """Answer and close; uvicorn calls it while it handles h11's error, which says more than `msg`."""
        cause = sys.exc_info()[1]
        error = refusals.not_http(str(cause or msg), getattr(cause, "error_status_hint", 400))
        body = orjson.dumps(error_body(error))
        sizes = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        head = h11.Response(status_code=error.status, headers=sizes)
        with suppress(h11.LocalProtocolError):  # another answer is under way
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()
