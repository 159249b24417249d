"""The console's HTTP: addresses, methods, statuses; the work itself is done by `site` and `streams`.

Invariant: nothing but the creation form changes anything, and it exists only where changes are allowed.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import ClusterUnreachable
from strandline.console.new_topic import Unreadable, create_topic, read_form, read_topic, trouble_of
from strandline.console.pages import Form, Page, Site, write_page
from strandline.console.settings import ConsoleSettings
from strandline.console.streams import LiveResponse, Pulse, Streams
from strandline.core.errors import Refused

# ---- guarding
# Decides which requests are answered at all, and which of them may change something.
#
# Invariant: a change needs a form of our own (a token bound to a cookie that only this site gets), sent from our own
# origin, to a host name that is ours; each of the three alone would refuse a page of strangers.

COOKIE = "strandline-console"
MOST_BODY_BYTES = 64 << 10

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": browsers would then send forms with the origin "null".
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Guard:
    """Wraps the application: host names that are ours, and headers on every answer."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or answer with our headers."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        if scope["type"] == "http" and not self.is_ours(Request(scope).headers.get("host", "")):
            said = b"this console is not served under that name; see the setting hosts\n"
            await send_guarded(
                {"type": "http.response.start", "status": 421, "headers": [(b"content-type", b"text/plain")]}
            )
            await send_guarded({"type": "http.response.body", "body": said})
            return
        await self._app(scope, receive, send_guarded)

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this console."""
        if not self._allowed:
            return True
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return name.lower() in self._allowed


class Tokens:
    """Tokens of forms; they are valid until this process ends."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def session_of(self, request: Request) -> str:
        """The browser's cookie, or a new one."""
        return request.cookies.get(COOKIE, "")[:64] or secrets.token_urlsafe(24)

    def token(self, session: str) -> str:
        """The token of a cookie."""
        return hmac.new(self._secret, session.encode(), sha256).hexdigest()

    def is_good(self, request: Request, token: str) -> bool:
        """Whether a token belongs to the request's cookie."""
        session = request.cookies.get(COOKIE, "")
        return bool(session) and hmac.compare_digest(self.token(session).encode(), token.encode())


def is_same_origin(request: Request) -> bool:
    """Whether a form was sent by a page of ours: its origin is the host it was sent to."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site") == "same-origin"
    return bool(origin) and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()


_STATIC = Path(__file__).parent / "static"
_FILES = {"console.css": "text/css", "console.js": "text/javascript"}


class Web:
    """The addresses of one console. ``cluster`` gives the connection, None while there is none."""

    def __init__(
        self,
        settings: ConsoleSettings,
        site: Site,
        pulse: Pulse,
        streams: Streams,
        cluster: Callable[[], Cluster | None],
    ) -> None:
        self._settings = settings
        self._site = site
        self._pulse = pulse
        self._streams = streams
        self._cluster = cluster
        self._tokens = Tokens()

    def app(self) -> ASGIApp:
        """The application, guarded."""
        routes = [
            Route("/static/{name}", self._static),
            Route("/live{path:path}", self._live),
            Route("/topics", self._create, methods=["POST"]),
            Route("/{path:path}", self._page),
        ]
        return Guard(Starlette(routes=routes), self._settings.allowed_hosts)

    async def _page(self, request: Request) -> Response:
        return self._shown(request, self._made(request, request.url.path))

    def _made(self, request: Request, path: str, form: Form | None = None) -> Page:
        if path == "/topics" and self._settings.allow_changes:
            form = form or Form(values={}, created=request.query_params.get("created", "")[:249])
            form = Form(form.values, self._tokens.token(self._session(request)), form.trouble, form.created)
        return self._site.page(path, request.query_params, self._site.seen(self._pulse.version), form)

    def _session(self, request: Request) -> str:
        # One per request: the form and the cookie must be of the same session.
        if not hasattr(request.state, "session"):
            request.state.session = self._tokens.session_of(request)
        session: str = request.state.session
        return session

    def _shown(self, request: Request, page: Page) -> Response:
        response = HTMLResponse(write_page(page), status_code=page.status, headers={"cache-control": "no-store"})
        if self._settings.allow_changes:
            is_https = bool(self._settings.https_cert)
            response.set_cookie(COOKIE, self._session(request), httponly=True, samesite="strict", secure=is_https)
        return response

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return PlainTextResponse("there is no such file\n", status_code=404)
        return FileResponse(_STATIC / name, media_type=_FILES[name], headers={"cache-control": "no-cache"})

    async def _live(self, request: Request) -> ASGIApp:
        path = request.path_params["path"] or "/"
        query = dict(request.query_params)
        return LiveResponse(self._streams, lambda version: self._site.page(path, query, self._site.seen(version)))

    async def _create(self, request: Request) -> Response:
        refused = self._refused(request)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BODY_BYTES:
                refused = "The form is larger than any form of ours."
                break
        if refused:
            return self._shown(request, self._site.lost(self._site.seen(self._pulse.version), refused, 403))
        given = read_form(body)
        if not self._tokens.is_good(request, given["token"]):
            said = {"code": "", "field": "", "sentence": "The form is of an earlier run of the console.", "rule": "",
                    "remedy": "send it again"}  # fmt: skip
            return self._shown(request, self._made(request, "/topics", Form(given, trouble=said)))
        return await self._asked(request, given)

    def _refused(self, request: Request) -> str:
        """Why a change is refused before it is read; empty if it is not."""
        if not self._settings.allow_changes:
            return "Changes are not allowed here; start the console with --allow-changes."
        if not is_same_origin(request):
            return "The form was not sent by a page of this console."
        if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
            return "The form is not URL-encoded."
        return ""

    async def _asked(self, request: Request, given: dict[str, str]) -> Response:
        try:
            topic = read_topic(given)
            if (cluster := self._cluster()) is None:
                raise ClusterUnreachable("no controller has answered yet")
            await create_topic(cluster, topic)
        except (Unreadable, Refused, ClusterUnreachable) as error:
            return self._shown(request, self._made(request, "/topics", Form(given, trouble=trouble_of(error))))
        return RedirectResponse(f"/topics?{urlencode({'created': given['name']})}", status_code=303)
