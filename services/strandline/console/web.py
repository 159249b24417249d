"""The console's HTTP: addresses, methods, statuses, and the form of a new topic; pages and streams make the rest.

Invariant: nothing but the creation form changes anything, and it exists only where changes are allowed.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strandline.client.administer.admin_answers import only
from strandline.client.cluster.metadata import Cluster
from strandline.client.cluster.repeating import ask_again, new_request_id
from strandline.client.errors import ClusterUnreachable
from strandline.console.pages import Form, Page, Site, write_page
from strandline.console.settings import ConsoleSettings
from strandline.console.streams import LiveResponse, Pulse, Streams
from strandline.core.errors import RULES, Refused
from strandline.v1 import controller_service_pb2 as pb

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
            said = "this console is not served under that name; see the setting hosts\n"
            await PlainTextResponse(said, 421)(scope, receive, send_guarded)
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
        # Not that of the URL, in which a question mark of a group's name is still encoded.
        return self._shown(request, self._made(request, request.scope["path"]))

    def _made(self, request: Request, path: str, form: Form | None = None) -> Page:
        if path == "/topics" and self._settings.allow_changes:
            form = form or Form(values={}, created=request.query_params.get("created", "")[:249])
            form = Form(form.values, self._tokens.token(self._session(request)), form.trouble, form.created)
        return self._site.page(path, request.query_params, self._site.seen(self._pulse.version), form)

    def _session(self, request: Request) -> str:
        # One per request: the form and the cookie must be of the same session.
        if not hasattr(request.state, "session"):
            request.state.session = request.cookies.get(COOKIE, "")[:64] or secrets.token_urlsafe(24)
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
            said = _reported("", "", "The form is of an earlier run of the console.", "", "send it again")
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


# ---- new_topic
# The form of a new topic: how it is read and sent to the controller, and how a refusal is shown.
#
# Invariant: the controller alone judges names and settings; here only what cannot be a number is refused. A topic is
# asked for once; a lost answer is shown as lost, and the request is never repeated.

_DEADLINE_MS = 10_000
_FIELDS = ("name", "partitions", "replication_factor", "configs", "token")


class Unreadable(ValueError):
    """A field that must be a whole number, or a line that must be NAME=VALUE, is not; ``field`` says which."""

    def __init__(self, field: str, rule: str, remedy: str) -> None:
        super().__init__(rule)
        self.field = field
        self.rule = rule
        self.remedy = remedy


def read_form(body: bytes) -> dict[str, str]:
    """The fields of the form; others are ignored."""
    given = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
    return {name: given.get(name, [""])[0].strip() for name in _FIELDS}


def read_topic(given: Mapping[str, str]) -> pb.CreatableTopic:
    """The topic that the fields describe.

    Raises:
        Unreadable: a field cannot be read.
    """
    return pb.CreatableTopic(
        name=given["name"],
        num_partitions=_count("partitions", given["partitions"]),
        replication_factor=_count("replication_factor", given["replication_factor"]),
        configs=_configs(given["configs"]),
    )


async def create_topic(cluster: Cluster, topic: pb.CreatableTopic) -> None:
    """Ask the controller for the topic.

    Raises:
        Refused: the controller's refusal.
        ClusterUnreachable: no answer; the topic may have been created.
    """
    request = pb.CreateTopicsRequest(
        cluster_id=cluster.cluster_id, topics=[topic], timeout_ms=_DEADLINE_MS, request_id=new_request_id()
    )
    answer = await ask_again(cluster, lambda to: to.CreateTopics, request, deadline_ms=_DEADLINE_MS)
    only(answer.topics)


def trouble_of(error: Unreadable | Refused | ClusterUnreachable) -> dict[str, str]:
    """A failure as the page shows it: code, field, sentence, rule, remedy; what is not known is empty."""
    if isinstance(error, Unreadable):
        return _reported("", error.field, "cannot be read", error.rule, error.remedy)
    if isinstance(error, Refused):
        refusal = error.refusal
        remedy = refusal.remedy or RULES[refusal.code].remedy
        return _reported(refusal.code.name, refusal.field or "", refusal.message, refusal.rule or "", remedy)
    remedy = "look at the list of topics before asking again: it may have been created"
    return _reported("", "", f"no answer: {error}", "", remedy)


def _reported(code: str, field: str, sentence: str, rule: str, remedy: str) -> dict[str, str]:
    return {"code": code, "field": field, "sentence": sentence, "rule": rule, "remedy": remedy}


def _count(field: str, text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 6:
        raise Unreadable(field, "must be a whole number", "write for example 3, or leave it empty for the default")
    return int(text)


def _configs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and (not equals or not name.strip()):
            raise Unreadable("configs", "must have one NAME=VALUE on each line", "write min.insync.replicas=2")
        if line.strip():
            found[name.strip()] = value.strip()
    return found
