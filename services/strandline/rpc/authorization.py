"""Checks before each handler whether the caller may make the request; with TLS only.

Invariant: no handler of a server with this interceptor receives a request, or a message of a stream, that the table of
`rpc.permissions` does not allow to the identity in the caller's certificate. What the table does not name is refused.
A client's rules are looked up for every message, because they change.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import structlog

from strandline.core.errors import ErrorCode, Outcome, Refused
from strandline.core.permissions import ANONYMOUS, BY_ROLE, Acls, Caller, Permit, Tell, audit_of
from strandline.rpc.interceptors import Context, Handler, Wrapping, before
from strandline.rpc.permissions import (
    ALWAYS,
    NEEDS,
    TABLE,
    Bearer,
    CallerRole,
    Condition,
    Grants,
    Identity,
    Need,
    identity_of_peer,
)
from strandline.rpc.permitted import CALL, IDENTITY, everything, refusal_of_whole

if TYPE_CHECKING:
    from strandline.rpc.tokens import Tokens

_URIS = "peer_uri"
"""The key of a verified peer's certificate URIs in gRPC's auth context."""

_SAY_EVERY_S = 1.0
_GRANTS_KEPT = 10_000


class _Grant(NamedTuple):
    """The condition under which an identity may call a method, and what its rules must allow (None: needs no rules)."""

    caller: Identity
    condition: Condition
    need: Need | None


_log = structlog.get_logger("strandline.rpc")


class PermissionInterceptor(Wrapping):
    """Refuses what the table does not allow. ``cluster`` is the one that this process's own certificate names.

    ``acls`` returns the current rules, which clients need in addition to the table; None: they need none. ``tell`` is
    called with each refusal. ``tokens`` identifies callers without a certificate; None: every caller has one.
    """

    def __init__(
        self,
        cluster: str,
        table: Callable[[str], Grants | None] = TABLE.get,
        acls: Callable[[], Acls] | None = None,
        tell: Tell = lambda _: None,
        tokens: Tokens | None = None,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._tell = tell
        self._tokens = tokens
        self._table = table
        self._acls = acls
        # The table never changes while the process runs, so its grants are cached; rules change, so they are not.
        self._granted: dict[tuple[str, tuple[bytes, ...]], _Grant] = {}
        self._said_s = float("-inf")

    def wrap(self, method: str, handler: Handler) -> Handler:
        """See `Wrapping`."""
        if handler.unary_unary is not None:
            return handler._replace(unary_unary=self._one_request(method, handler.unary_unary, is_stream=False))
        if handler.unary_stream is not None:
            return handler._replace(unary_stream=self._one_request(method, handler.unary_stream, is_stream=True))
        return handler._replace(stream_stream=self._many_requests(method, handler.stream_stream))

    def _one_request(self, method: str, inner: Callable[..., Any], *, is_stream: bool) -> Callable[..., Any]:
        def check(request: Any, context: Context) -> tuple[Any, Context]:
            grant, look = self._begin(method, context, is_stream=is_stream)
            look(request, names_one=True)
            if grant.need is None:
                return request, context

            async def write(answer: Any) -> None:
                # Rules may change while the stream is open.
                look(request, names_one=True)
                await context.write(answer)

            return request, _CheckedContext(context, write=write)

        return before(inner, check)

    def _many_requests(self, method: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def check(requests: Any, context: Context) -> tuple[Any, Context]:
            grant, look = self._begin(method, context, is_stream=True)
            if grant.condition is ALWAYS and grant.need is None:
                return requests, context

            def looked_at(message: Any) -> Any:
                # The end of the stream is no message, nor is the refusal that replaces an unreadable one.
                if message is not grpc.aio.EOF and not isinstance(message, Refused):
                    look(message)
                return message

            async def read() -> Any:
                return looked_at(await context.read())

            async def iterated() -> AsyncIterator[Any]:
                async for message in requests:
                    yield looked_at(message)

            return iterated(), _CheckedContext(context, read=read)

        return before(inner, check)

    def _begin(self, method: str, context: Context, *, is_stream: bool) -> tuple[_Grant, Callable[..., None]]:
        """Set the caller for the handler; return its grant, and a function that raises if a message is not allowed.

        That function checks the message as a whole; its handler checks each topic. ``names_one``: check its group or
        transactional id too; for a message of a stream the handler does, because that message gets its own answer.
        """
        grant, acls = self._grant(method, context, is_stream=is_stream), self._acls
        IDENTITY.set(grant.caller)
        CALL.set(everything)
        if grant.need is not None and acls is not None:
            caller = Caller(grant.caller.principal, grant.need.of, method, context.peer())
            CALL.set(lambda: Permit(caller, acls(), self._tell))
        permits = CALL.get()

        def look(message: Any, *, names_one: bool = False) -> None:
            if not grant.condition.holds(message, grant.caller):
                raise self._refused(method, grant.caller, f"only {grant.condition.words}", context)
            need = grant.need
            if need is not None and (refusal := refusal_of_whole(permits(), need, message, names_one=names_one)):
                self._say(method, grant.caller, refusal.message)
                raise Refused.of(refusal)

        return grant, look

    def _grant(self, method: str, context: Context, *, is_stream: bool = False) -> _Grant:
        """The caller, and the condition under which it may call the method.

        Raises:
            Refused: the peer names no Strandline identity, belongs to another cluster, or may never call the method.
        """
        if (bearer := self._bearer(method, context, is_stream)) is not None:
            # Not cached: the number of token holders is unbounded.
            return self._look_up(method, bearer, context)
        uris = tuple(context.auth_context().get(_URIS, ()))
        granted = self._granted.get((method, uris))
        if granted is None:
            granted = self._look_up(method, identity_of_peer(uris), context)
            if len(self._granted) < _GRANTS_KEPT:
                self._granted[method, uris] = granted
        return granted

    def _bearer(self, method: str, context: Context, is_stream: bool) -> Bearer | None:
        try:
            return None if self._tokens is None else self._tokens.of_call(context, is_stream=is_stream)
        except Refused as refused:
            self._note(method, None, refused.refusal.message, context)
            raise

    def _look_up(self, method: str, caller: Identity | None, context: Context) -> _Grant:
        if caller is None:
            why = "the certificate names no identity strandline://<cluster>/<role>/<id>"
            raise self._refused(method, None, why, context)
        grants = self._table(method) or {}
        condition = grants.get(caller.role)
        by_rules = self._acls is not None and caller.role is CallerRole.CLIENT
        need = NEEDS.get(method) if by_rules else None
        if need is not None and CallerRole.ADMIN in grants:
            # Rules may allow a client what is otherwise for administrators only.
            condition = condition or ALWAYS
        if caller.cluster != self._cluster:
            why = f"the certificate is of cluster '{caller.cluster}' and not of this one"
            raise self._refused(method, caller, why, context)
        if condition is None:
            raise self._refused(method, caller, f"it is for {', '.join(grants) or 'no caller'}", context)
        if by_rules and need is None:
            raise self._refused(method, caller, "no rule can allow it to a client", context)
        return _Grant(caller, condition, need)

    def _refused(self, method: str, caller: Identity | None, why: str, context: Context) -> Refused:
        self._note(method, caller, why, context)
        message = f"{caller or 'the caller'} may not call {method.rpartition('/')[2]}: {why}"
        return Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message, Outcome.NOT_APPENDED)

    def _note(self, method: str, caller: Identity | None, why: str, context: Context) -> None:
        principal = ANONYMOUS if caller is None else caller.principal
        self._tell(audit_of(Caller(principal, None, method, context.peer()), None, None, "REFUSED", BY_ROLE))
        self._say(method, caller, why)

    def _say(self, method: str, caller: Identity | None, why: str) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= _SAY_EVERY_S:
            # A caller that retries in a loop must not fill the disk with log lines.
            self._said_s = now_s
            _log.warning("a caller is refused", method=method, caller=caller.uri if caller else "", why=why)


class _CheckedContext:
    """A call's context that checks every message when it is read, or the request before each answer is written."""

    def __init__(self, context: Context, **checked: Any) -> None:
        self._context = context
        # Called for every message, so they are not looked up each time.
        self.read = checked.get("read", context.read)
        self.write = checked.get("write", context.write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
