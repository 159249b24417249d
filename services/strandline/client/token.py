"""The bearer token of one client: requested at the start, and again before it expires.

Invariant: a token is in the headers of calls over TLS and nowhere else: in no line of the log, no error and no `repr`.
Until there is a new token the old one is sent, and servers decide.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path

from strandline.client.log import RetryLog
from strandline.rpc.tls import CallMetadata, Tls, TlsWithToken, TlsWrong, is_given

TokenCallback = Callable[[], str | Awaitable[str]]
"""Returns a token that is valid for a while, for example from an OpenID provider. A function that is not asynchronous
is called in a thread of its own."""

PATIENCE_S = 10.0
"""How long the callback may take."""
LOOK_S = 0.5
"""Time between two checks of the clock, and the least time between two calls of the callback."""
_AT = 0.8
"""The share of a token's lifetime after which a new one is requested."""
_TOKEN = re.compile(r"[!-~]{1,8192}")


class NoToken(ValueError):
    """The callback returned no token; the message says why, but never what it returned or raised."""


def token_in(file: str) -> Callable[[], str]:
    """A callback that reads the token from a file whenever one is needed."""

    def read() -> str:
        try:
            return Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NoToken(f"token file {file} cannot be read: {error}") from None

    return read


class Token:
    """The token of one client."""

    def __init__(self, ask: TokenCallback) -> None:
        self._ask = ask
        self._token = ""
        self._asked_s, self._due_s = -math.inf, math.inf
        self._asking = asyncio.Lock()
        # Of a callback that is not asynchronous: it is not called again before it has returned.
        self._called: asyncio.Future[str | Awaitable[str]] | None = None
        self._retry = RetryLog("asking for a token")

    def tls(self, cert: str | Path | bytes, key: str | Path | bytes, ca: str | Path | bytes) -> Tls:
        """TLS for a client that presents it.

        Raises:
            TlsWrong: a certificate is given as well, or no authority.
        """
        if is_given(cert) or is_given(key):
            raise TlsWrong("a client shows a token or a certificate; give tls_ca and token, or leave token out")
        if not is_given(ca):
            raise TlsWrong("token needs tls_ca: without TLS a token can be read on its way; give tls_ca")
        return TlsWithToken(ca, self.metadata)

    def metadata(self) -> CallMetadata:
        """The headers of a call now."""
        return (("authorization", f"Bearer {self._token}"),)

    async def replace(self, shown: CallMetadata) -> None:
        """Request a token other than the one in a call, unless there is a newer one already; a failure is logged."""
        async with self._asking:
            # All calls of a moment are refused with one token, and the first of them has replaced it.
            if shown != self.metadata():
                return
            await asyncio.sleep(self._asked_s + LOOK_S - time.monotonic())
            try:
                await self.renew()
                self._retry.worked()
            except NoToken as error:
                self._retry.failed(time.monotonic() * 1000, str(error))

    async def renew(self) -> None:
        """Request a token.

        Raises:
            NoToken: the callback failed, took longer than `PATIENCE_S`, or returned none.
        """
        self._asked_s = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                is_async = inspect.iscoroutinefunction(self._ask)
                given = self._ask() if is_async else await self._in_a_thread()
                token: object = await given if inspect.isawaitable(given) else given
        except NoToken:
            raise
        except Exception as error:
            # Its text may contain the callback's credentials.
            raise NoToken(f"the callback for tokens failed: {type(error).__name__}") from error
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise NoToken("the callback for tokens gave no token: a string without spaces, of at most 8192 characters")
        self._token, self._due_s = token, self._asked_s + _lasts_s(token) * _AT

    async def _in_a_thread(self) -> str | Awaitable[str]:
        if self._called is None or self._called.done():
            # A daemon, and none of the threads that others share: it may hang.
            called: Future[str | Awaitable[str]] = Future()
            threading.Thread(target=_call, args=(self._ask, called), name="token callback", daemon=True).start()
            self._called = asyncio.wrap_future(called)
            # So that asyncio never writes the error of a late one to the log, as `shield` does from Python 3.14 on.
            self._called.add_done_callback(lambda late: late.cancelled() or late.exception())
        await asyncio.wait([asked := self._called])
        return asked.result()

    async def keep_forever(self) -> None:
        """Replace the token before it expires, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if time.monotonic() >= self._due_s:
                await self.replace(self.metadata())


def _call(ask: TokenCallback, called: Future[str | Awaitable[str]]) -> None:
    try:
        called.set_result(ask())
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        called.set_exception(error)


def _lasts_s(token: str) -> float:
    """Remaining lifetime according to the token, in s; infinite for tokens that do not have one."""
    try:
        # Not verified, which is the server's to do: this only decides when the next token is asked for.
        claims = token.split(".")[1]
        content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return max(0.0, float(content["exp"]) - time.time())
    except (IndexError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return math.inf
