"""The console's HTTP: addresses, methods, statuses; the work itself is done by `site` and `streams`.

Invariant: nothing but the creation form changes anything, and it exists only where changes are allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from strandline.client.cluster.metadata import Cluster
from strandline.client.errors import ClusterUnreachable
from strandline.console.guarding import COOKIE, MOST_BODY_BYTES, Guard, Tokens, is_same_origin
from strandline.console.new_topic import Unreadable, create_topic, read_form, read_topic, trouble_of
from strandline.console.pages import Page, write_page
from strandline.console.pulse import Pulse
from strandline.console.settings import ConsoleSettings
from strandline.console.site import Form, Site
from strandline.console.streams import LiveResponse, Streams
from strandline.core.errors import Refused

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
        """Why a change is not even read; empty: it is."""
        if not self._settings.allow_changes:
            return "Changes are not allowed here; start the console with --allow-changes."
        if not is_same_origin(request):
            return "The form was not sent by a page of this console."
        if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
            return "The form is not encoded as forms are."
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
