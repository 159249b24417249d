"""The analytics server takes tokens as nodes do, and commands that ask it show theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import typer
from certificates import Certificates, settings_of
from issued_tokens import TokenIssuer
from secured_cluster import Secured, secured_cluster, until
from typer.testing import CliRunner

from strandline.cli.connect import over_tls
from strandline.client import Rule
from strandline.core.errors import ErrorCode
from strandline.core.messages import Endpoint
from strandline.core.permissions import CLUSTER_NAME, EVERY_NAME, Operation, Pattern, Permission, ResourceType
from strandline.rpc.channels import open_channel, target
from strandline.rpc.status import refusal_of
from strandline.rpc.tls import Tls, TlsWithToken
from strandline.v1 import analytics_service_pb2 as pb, analytics_service_pb2_grpc as pb_grpc
from strandline_analytics.commands import app
from strandline_analytics.commands.remote import ask
from strandline_analytics.service.process import AnalyticsServer
from strandline_analytics.service.settings import AnalyticsSettings
from strandline_analytics.tables.destination import Destination

SUBJECT = "alice"


@asynccontextmanager
async def _served(directory: Path, issuer: TokenIssuer) -> AsyncIterator[tuple[Secured, Endpoint]]:
    """A cluster whose rules let one holder of tokens ask, and the analytics server, which has heard of them."""
    (directory / "export").mkdir()
    async with secured_cluster(directory, (1,)) as cluster:
        settings = AnalyticsSettings(
            inputs=(str(directory / "export"),),
            destination=Destination(out=str(directory / "results")),
            rules_of=target(cluster.for_clients),
            token_issuers=issuer.file(),
            **cast(Any, settings_of(cluster.made.files("admin/analytics"))),
        )
        # Spark computes answers; no request here needs one.
        server = AnalyticsServer(settings, cast(Any, None))
        endpoint = await server.start()
        about = ((ResourceType.TOPIC, EVERY_NAME), (ResourceType.CLUSTER, CLUSTER_NAME))
        described = (Permission.ALLOW, Operation.DESCRIBE)
        grants = [Rule(f"{issuer.alias}:{SUBJECT}", *described, kind, Pattern.LITERAL, name) for kind, name in about]
        await cluster.admin.create_acls(grants)

        async def is_heard() -> bool:
            return (await _asked(endpoint, _shows(cluster, issuer.token())))[0] == "OK"

        try:
            await until(is_heard, "the rules are followed")
            yield cluster, endpoint
        finally:
            await server.shut_down()


def _shows(cluster: Secured, token: str) -> TlsWithToken:
    return TlsWithToken(cluster.made.authority.pem, lambda: (("authorization", f"Bearer {token}"),))


async def _asked(endpoint: Endpoint, tls: Tls) -> tuple[str, ErrorCode | None, str | None]:
    async with open_channel(endpoint, tls=tls) as channel:
        stub: Any = pb_grpc.AnalyticsServiceStub(channel)
        try:
            await stub.ListStats(pb.ListStatsRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            return error.code().name, refusal.code, refusal.rule
    return "OK", None, None


async def test_who_a_token_names_asks_what_rules_allow(tmp_path: Path) -> None:
    """One with grants is answered, one without is not, an expired token is refused as by a node; certificates are as
    before."""
    issuer = TokenIssuer(tmp_path)
    async with _served(tmp_path, issuer) as (cluster, endpoint):
        ungranted = await _asked(endpoint, _shows(cluster, issuer.token(sub="bob")))
        expired = await _asked(endpoint, _shows(cluster, issuer.token(lasts_s=-60)))
        certified = await _asked(endpoint, cluster.made.tls("admin/root"))

    assert ungranted[:2] == ("PERMISSION_DENIED", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert expired == ("UNAUTHENTICATED", ErrorCode.SASL_AUTHENTICATION_FAILED, "TOKEN_EXPIRED")
    assert certified == ("OK", None, None)


async def test_a_command_that_asks_shows_the_token_in_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And says why the service, or the file, gave it nothing."""
    issuer, token = TokenIssuer(tmp_path), tmp_path / "token"
    async with _served(tmp_path, issuer) as (cluster, endpoint):

        def lists() -> int:
            def command() -> int:
                answer: Any = ask(target(endpoint), lambda stub: stub.ListStats(pb.ListStatsRequest(), timeout=10))
                return len(answer.stats)

            try:
                ca = cluster.made.files("client/x").ca
                return int(over_tls(command)(tls_ca=str(ca), token_file=str(token)))
            except typer.Exit as end:
                return -end.exit_code

        absent = await asyncio.to_thread(lists)
        token.write_text(issuer.token())
        listed = await asyncio.to_thread(lists)
        token.write_text(issuer.token(lasts_s=-60))
        expired = await asyncio.to_thread(lists)
    said = capfd.readouterr().err

    assert listed > 0
    assert absent < 0 and f"token file {token} cannot be read" in said
    assert expired < 0 and "refused: SASL_AUTHENTICATION_FAILED: the token has expired" in said


def test_issuers_that_cannot_be_used_are_refused_before_spark_starts(tmp_path: Path) -> None:
    """Without TLS, and with a file that is none; each in a sentence."""
    made = Certificates.at(tmp_path)
    files = made.files("client/analytics")
    tls = ("--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca))
    serve = ("serve", "--input", str(tmp_path), "--token-issuers", str(tmp_path / "absent"))
    plain, absent = (CliRunner().invoke(app, [*serve, *more]) for more in ((), tls))

    assert plain.exit_code == 2 and "--token-issuers needs --tls-cert" in plain.output
    assert absent.exit_code == 2 and "cannot be read: [Errno 2]" in absent.output
