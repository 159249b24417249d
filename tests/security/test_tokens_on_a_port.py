"""A certificate and a token share the port for clients: who is let in, and what a stream's end is."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from certificates import CLUSTER, Certificates
from guarded_service import guarded, stub
from issued_tokens import TokenIssuer
from structlog.testing import capture_logs

from strandline.cli.local.authority import new_authority
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import Endpoint
from strandline.rpc import authorization, tokens as module, transports
from strandline.rpc.channels import open_channel, target
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import TlsWithToken
from strandline.rpc.tokens import Tokens
from strandline.v1 import leader_service_pb2 as pb, leader_service_pb2_grpc as pb_grpc

DEADLINE_S = 10


class Handlers:
    """Answers a produce, and a stream of fetches without end; counts the calls."""

    def __init__(self) -> None:
        self.reached = 0
        self.ended = asyncio.Event()

    async def produce(self, _request: Any, context: Any) -> Any:
        self.reached += 1
        return pb.ProduceResponse()

    async def echo(self, _: Any, context: Any) -> None:
        """A stream that answers each message."""
        self.reached += 1
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                await context.write(pb.FetchStreamResponse(correlation_id=message.correlation_id))
        finally:
            self.ended.set()


@asynccontextmanager
async def _port(made: Certificates, issuer: TokenIssuer) -> AsyncIterator[tuple[Endpoint, Handlers]]:
    tokens = Tokens((issuer.entry(),), CLUSTER)
    await tokens.start()
    handlers = Handlers()
    tls = made.tls("replica/1")
    async with guarded(tls, tokens=tokens, Produce=handlers.produce, FetchStream=handlers.echo) as endpoint:
        yield endpoint, handlers


def _bare(made: Certificates, *metadata: tuple[str, str]) -> TlsWithToken:
    """TLS without a certificate, with this metadata in each call."""
    return TlsWithToken(made.authority.pem, lambda: metadata)


def _shown(token: str) -> tuple[str, str]:
    return "authorization", f"Bearer {token}"


async def _refused(endpoint: Endpoint, tls: Any, metadata: Iterable[tuple[str, str]] = ()) -> Refusal:
    async with stub(endpoint, tls) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S, metadata=tuple(metadata))
    refusal = refusal_of(caught.value)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert refusal.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    return refusal


async def test_a_certificate_and_a_token_share_a_port(made: Certificates, issuer: TokenIssuer) -> None:
    """The one as before, the other as a client; the same connection carries calls of several tokens."""
    async with _port(made, issuer) as (endpoint, handlers):
        for tls in (made.tls("client/x"), made.tls("admin/root"), _bare(made, _shown(issuer.token()))):
            async with stub(endpoint, tls) as client:
                await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)
        async with stub(endpoint, _bare(made)) as client:
            for sub in ("a", "b"):
                shown = (_shown(issuer.token(sub=sub)),)
                await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S, metadata=shown)

    assert handlers.reached == 5


async def test_neither_or_both_is_refused_in_a_sentence(made: Certificates, issuer: TokenIssuer) -> None:
    """Nothing reaches a handler; the sentence says what to send."""
    async with _port(made, issuer) as (endpoint, handlers):
        neither = await _refused(endpoint, _bare(made))
        both = await _refused(endpoint, made.tls("admin/root"), [_shown(issuer.token())])

    assert (neither.rule, neither.message) == (
        "TOKEN_MISSING",
        "no certificate and no token came; send 'authorization: Bearer TOKEN'",
    )
    assert both.rule == "TOKEN_AND_CERTIFICATE"
    assert handlers.reached == 0


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", "Basic abc", "Bearer a b", "Bearer  two", "bearer", "Bearer a.b.c", "Bearer ...", "x"],
)
async def test_a_malformed_header_is_refused(made: Certificates, issuer: TokenIssuer, value: str) -> None:
    """Whatever it is; and so is a second one beside a good one."""
    good = _shown(issuer.token())
    async with _port(made, issuer) as (endpoint, handlers):
        one = await _refused(endpoint, _bare(made), [("authorization", value)])
        two = await _refused(endpoint, _bare(made), [good, ("authorization", value)])

    assert (one.rule, two.rule) == ("TOKEN_INVALID", "TOKEN_INVALID")
    assert handlers.reached == 0


async def test_a_token_names_no_node_and_no_administrator(made: Certificates, issuer: TokenIssuer) -> None:
    """What the table gives to others than clients is refused, whatever the token says of roles."""
    async with (
        _port(made, issuer) as (endpoint, _),
        stub(endpoint, _bare(made, _shown(issuer.token(role="admin")))) as it,
    ):
        for call in (it.DeleteRecords(pb.DeleteRecordsRequest()), it.WriteTxnMarkers(pb.WriteTxnMarkersRequest())):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert refusal_of(caught.value).code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert "client login:alice may not call" in refusal_of(caught.value).message


async def test_a_certificate_of_another_authority_is_not_overlooked(made: Certificates, issuer: TokenIssuer) -> None:
    """Optional is not unchecked: the handshake fails, as it does where a certificate is required."""
    foreign = made.tls(
        "client/x", signed_by=(other := new_authority(CLUSTER, 1)), believes=made.authority.pem + other.pem
    )
    async with _port(made, issuer) as (endpoint, handlers), stub(endpoint, foreign) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert handlers.reached == 0


def test_only_a_port_with_tokens_lets_a_certificate_out(made: Certificates) -> None:
    """The same process's other ports go on to require one."""
    tls = made.tls("replica/1")
    modes = [tls.server_credentials(takes_tokens=takes).context().verify_mode for takes in (False, True, False)]  # type: ignore[union-attr]

    assert modes == [ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED]


async def test_a_stream_ends_with_its_token(made: Certificates, issuer: TokenIssuer) -> None:
    """By TOKEN_EXPIRED at the second it says, its handler too; a unary call may end later than its token."""
    async with _port(made, issuer) as (endpoint, handlers), stub(endpoint, _bare(made)) as client:
        ends_s = int(time.time()) + 2
        shown = (_shown(issuer.token(exp=ends_s)),)
        stream = client.FetchStream(timeout=DEADLINE_S, metadata=shown)
        await stream.write(pb.FetchStreamRequest(correlation_id=7))
        assert (await stream.read()).correlation_id == 7
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        ended_s = time.time()
        await asyncio.wait_for(handlers.ended.wait(), DEADLINE_S)
        await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S, metadata=shown)

    refusal = refusal_of(caught.value)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert (refusal.code, refusal.rule) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "TOKEN_EXPIRED")
    assert 0 <= ended_s - ends_s < 1


@pytest.mark.parametrize(("lasts_s", "ending_s"), [(10.0, 10.0), (-10.0, 20.0), (1e9, 86_400.0)])
async def test_when_a_stream_ends(monkeypatch: pytest.MonkeyPatch, lasts_s: float, ending_s: float) -> None:
    """With its token; one that came within the leeway, with the leeway; at the latest after a day."""
    at: list[float] = []
    loop = SimpleNamespace(call_later=lambda seconds, *_: at.append(seconds))
    monkeypatch.setattr(module.asyncio, "get_running_loop", lambda: loop)
    module._end_with(SimpleNamespace(add_done_callback=lambda _: None), time.time() + lasts_s)

    assert at == [pytest.approx(ending_s, abs=1)]


async def test_a_client_of_grpc_shows_a_token_with_its_own_credentials(made: Certificates, issuer: TokenIssuer) -> None:
    """Call credentials over TLS, as every gRPC language has them; and ours over gRPC's transport."""
    tls = grpc.ssl_channel_credentials(made.authority.pem)
    both = grpc.composite_channel_credentials(tls, grpc.access_token_call_credentials(issuer.token()))
    async with _port(made, issuer) as (endpoint, handlers):
        for credentials in (both, tls):
            async with grpc.aio.secure_channel(target(endpoint), credentials) as channel:
                client: Any = pb_grpc.LeaderServiceStub(channel)
                if credentials is both:
                    await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)
                    continue
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)
        transports.use("grpcio")
        try:
            async with open_channel(endpoint, tls=_bare(made, _shown(issuer.token()))) as channel:
                client = pb_grpc.LeaderServiceStub(channel)
                await client.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)
        finally:
            transports.use("asyncio")

    assert refusal_of(caught.value).rule == "TOKEN_MISSING"
    assert handlers.reached == 2


async def test_refusals_are_logged_without_the_token(
    made: Certificates, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its sentence; no part of a token is in a line or in what the caller is told."""
    monkeypatch.setattr(authorization, "_SAY_EVERY_S", 0.0)
    sent = [issuer.token(lasts_s=-60), issuer.token(kid="other"), issuer.token(sub="a\nb"), issuer.token()[:-3]]
    said = []
    with capture_logs() as lines:
        async with _port(made, issuer) as (endpoint, _):
            for token in sent:
                said.append(str(await _refused(endpoint, _bare(made, _shown(token)))))

    parts = [part for token in sent for part in token.split(".")]
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["a caller is refused"] * len(sent)
    assert not [part for part in parts if part in f"{lines}{said}"]
