"""Producers and consumers that show tokens to a real controller and real nodes, across the end of each token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import settings_of
from issued_tokens import TokenIssuer
from secured_cluster import Secured, secured_cluster, until
from structlog.testing import capture_logs
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.client import Admin, Consumer, NoToken, Producer, Refused, Rule, TlsWrong
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType
from strandline.rpc import tokens as module
from strandline.rpc.channels import open_channel, target
from strandline.rpc.tls import TlsWithToken
from strandline.v1 import metadata_service_pb2 as pb
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub
from strandline_sim.checks.history import (
    EndAnswer,
    Operation as Done,
    Read,
    RecordPlace,
    RecordValue,
    Seek,
    Send,
    SendOutcome,
    anomalies,
)

TOPIC = "t"


@asynccontextmanager
async def _cluster(directory: Path, issuer: TokenIssuer, **settings: Any) -> AsyncIterator[Secured]:
    """A controller and a node that believe an issuer and keep to rules; one topic."""
    path = issuer.file()
    async with secured_cluster(directory, (1,), token_issuers=path, authorization="acl", **settings) as cluster:
        await cluster.admin.create_topic(TOPIC, partitions=1, replication_factor=1)
        yield cluster


async def _allow(cluster: Secured, principal: str, *operations: Operation) -> None:
    rules = [Rule(principal, Permission.ALLOW, one, ResourceType.TOPIC, Pattern.LITERAL, TOPIC) for one in operations]
    assert await cluster.admin.create_acls(rules) == [None] * len(rules)


def _shown(cluster: Secured, token: Any) -> dict[str, Any]:
    """Where a client with this callback goes, and how."""
    return {"bootstrap": _bootstrap(cluster), "tls_ca": cluster.made.authority.pem, "token": token}


def _bootstrap(cluster: Secured) -> str:
    assert cluster.nodes[0].client is not None
    return f"{target(cluster.for_clients)},{target(cluster.nodes[0].client)}"


async def test_no_record_is_lost_or_doubled_at_the_end_of_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens of three seconds under a producer and a consumer: streams end at the second, every record is acknowledged
    once, the history is clean; and no part of a token is in a line, an event, a stored file or an answer."""
    issuer = TokenIssuer(tmp_path)
    given: list[str] = []
    due: dict[Any, float] = {}
    ends: list[tuple[str, float]] = []
    expired, end_with = module._expired, module._end_with

    def next_token() -> str:
        given.append(issuer.token(exp=int(time.time()) + 3))
        return given[-1]

    async def next_token_soon() -> str:
        return next_token()

    def noting_when(context: Any, expires_s: float) -> None:
        due[context] = expires_s
        end_with(context, expires_s)

    def noting_that(context: Any) -> None:
        ends.append((context._method.rpartition("/")[2], time.time() - due[context]))
        expired(context)

    monkeypatch.setattr(module, "_end_with", noting_when)
    monkeypatch.setattr(module, "_expired", noting_that)
    history: list[Done] = [Seek(consumer="c", place=RecordPlace(0, 0))]
    with capture_logs() as lines:
        async with _cluster(tmp_path, issuer, export_dir=str(tmp_path / "events"), export_format="jsonl") as cluster:
            await _allow(cluster, "login:alice", Operation.READ, Operation.WRITE)

            async def produce() -> int:
                count, until_s = 0, time.monotonic() + 9
                async with Producer(**_shown(cluster, next_token), linger_ms=1) as producer:
                    sent = []
                    while time.monotonic() < until_s:
                        sent.append((count, time.monotonic(), await producer.send(TOPIC, str(count).encode())))
                        count += 1
                        await asyncio.sleep(0.005)
                    for seq, at_s, delivery in sent:
                        offset = (await delivery).offset
                        history.append(_send(seq, at_s, offset))
                return count

            async def consume() -> None:
                async with Consumer(**_shown(cluster, next_token_soon), max_wait_ms=100) as consumer:
                    await consumer.assign([TOPIC])
                    while not (producing.done() and consumer.position(TOPIC, 0) == producing.result()):
                        for batch in await consumer.fetch_batches(timeout_ms=100):
                            history.extend(_read(record) for record in batch.records)

            async def may_write() -> bool:
                try:
                    async with Admin(**_shown(cluster, next_token)) as admin:
                        return bool(await admin.describe_topics([TOPIC]))
                except Refused:
                    return False

            await until(may_write, "the rules are known")
            producing = asyncio.create_task(produce())
            await asyncio.gather(producing, asyncio.wait_for(consume(), 60))
            count = producing.result()
            history.append(
                EndAnswer(partition=0, offset=count, invoked_s=time.monotonic(), completed_s=time.monotonic())
            )

    late_s = {name: [late for method, late in ends if method == name] for name, _ in ends}
    assert min(len(late_s["ProduceStream"]), len(late_s["FetchStream"])) >= 2
    assert all(0 <= late < 1 for late in late_s["ProduceStream"])
    assert sorted(one.offset for one in history if isinstance(one, Send)) == list(range(count))
    assert anomalies(history) == []
    assert [line for line in lines if line["log_level"] == "error"] == []
    assert _content(tmp_path / "events")
    said = f"{lines}{caplog.text}".encode() + _content(tmp_path)
    assert not [token for token in given for part in token.split(".")[1:] if part.encode() in said]


def _content(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def _send(seq: int, at_s: float, offset: int) -> Send:
    return Send(
        value=RecordValue("p", seq),
        partition=0,
        invoked_s=at_s,
        completed_s=time.monotonic(),
        outcome=SendOutcome.OK,
        offset=offset,
    )


def _read(record: Any) -> Read:
    value = RecordValue("p", int(record.value))
    return Read(consumer="c", place=RecordPlace(0, record.offset), value=value, at_s=time.monotonic())


async def test_rules_are_about_a_tokens_principal(tmp_path: Path) -> None:
    """login:alice may what she is granted, login:bob may not; `client/*` means holders of tokens too."""
    issuer = TokenIssuer(tmp_path)
    async with _cluster(tmp_path, issuer) as cluster:
        await _allow(cluster, "login:alice", Operation.DESCRIBE)

        async def sees(sub: str) -> bool:
            async with Admin(**_shown(cluster, lambda: issuer.token(sub=sub))) as admin:
                return bool(await admin.describe_topics())

        await until(lambda: sees("alice"), "alice is granted")
        assert not await sees("bob")
        await _allow(cluster, "client/*", Operation.DESCRIBE)
        await until(lambda: sees("bob"), "everybody is granted")


async def test_a_refused_token_is_replaced_and_the_question_asked_again(tmp_path: Path) -> None:
    """Keys that the issuer takes back end its old tokens at once: the next question has a new one, with no error."""
    issuer, asked = TokenIssuer(tmp_path), []
    async with _cluster(tmp_path, issuer) as cluster:

        def token() -> str:
            asked.append(issuer.kid)
            return issuer.token()

        await _allow(cluster, "login:alice", Operation.DESCRIBE)
        async with Admin(**_shown(cluster, token)) as admin:
            issuer.rotate("k2")
            for process in (cluster.controller, *cluster.nodes):
                await process._tokens._keys[issuer.issuer].refresh()  # type: ignore[union-attr]  # there are issuers
            assert await admin.describe_topics([TOPIC])

    assert set(asked) == {"k1", "k2"}


@pytest.mark.parametrize("wrong", ["aud", "expired"])
async def test_a_client_whose_token_is_not_believed_says_so_at_its_start(tmp_path: Path, wrong: str) -> None:
    """With the server's sentence, and without waiting for its deadline."""
    issuer = TokenIssuer(tmp_path)
    claims = {"aud": "other"} if wrong == "aud" else {"lasts_s": -300}
    async with _cluster(tmp_path, issuer) as cluster:
        began_s = time.monotonic()
        with pytest.raises(Refused, match=r"^SASL_AUTHENTICATION_FAILED"):
            await Admin(**_shown(cluster, lambda: issuer.token(**claims)), timeout_ms=60_000).start()

    assert time.monotonic() - began_s < 30


async def test_nodes_and_administrators_are_as_before(tmp_path: Path) -> None:
    """With issuers set, a certificate names whom it named: the cluster forms, and its administrator administers. On the
    ports for nodes a token is nothing: they require a certificate."""
    issuer = TokenIssuer(tmp_path)
    codes = []
    async with _cluster(tmp_path, issuer) as cluster:
        producing = settings_of(cluster.made.files("admin/root"))
        async with Producer(_bootstrap(cluster), **producing) as producer:
            delivered = await (await producer.send(TOPIC, b"record"))
        shown = (("authorization", f"Bearer {issuer.token()}"),)
        tls = TlsWithToken(cluster.made.authority.pem, lambda: shown)
        for endpoint in (cluster.nodes[0].client, cluster.nodes[0].internal, cluster.for_clients, cluster.for_nodes):
            assert endpoint is not None
            async with open_channel(endpoint, tls=tls) as channel:
                call = MetadataServiceStub(channel).DescribeCluster(pb.DescribeClusterRequest(), timeout=10)
                codes.append((await call.code()).name)  # type: ignore[attr-defined]  # the asynchronous one

    assert delivered.offset == 0
    assert codes == ["OK", "UNAVAILABLE", "OK", "UNAVAILABLE"]


async def test_a_command_shows_the_token_in_a_file(tmp_path: Path) -> None:
    """And says in one line what is wrong with the file, or with what is given beside it; never what is in it."""
    issuer = TokenIssuer(tmp_path)
    async with _cluster(tmp_path, issuer) as cluster:
        await _allow(cluster, "login:alice", Operation.DESCRIBE)
        files = cluster.made.files("client/x")
        token = tmp_path / "token"
        token.write_text(f"{issuer.token()}\n")
        command = ["topic", "list", "--bootstrap", _bootstrap(cluster), "--tls-ca", str(files.ca)]

        async def run(*words: str) -> tuple[int, str]:
            ended = await asyncio.to_thread(CliRunner().invoke, app, [*command, *words])
            assert token.read_text().strip() not in ended.output
            return ended.exit_code, ended.output

        async def lists() -> bool:
            code, output = await run("--token-file", str(token))
            return code == 0 and f"{TOPIC} " in output

        await until(lists, "the rule is known")
        absent = await run("--token-file", str(tmp_path / "absent"))
        both = await run("--token-file", str(token), "--tls-cert", str(files.cert), "--tls-key", str(files.key))
        token.write_text("two words")
        no_token = await run("--token-file", str(token))
        token.write_text(issuer.token(aud="other"))
        not_believed = await run("--token-file", str(token))

    assert absent[0] == 2 and f"token file {tmp_path / 'absent'} cannot be read" in absent[1]
    assert both[0] == 2 and "give tls_ca and token, or leave token out" in both[1]
    assert no_token[0] == 2 and "gave no token: a string without spaces" in no_token[1]
    assert not_believed[0] == 1 and "the token's aud is not that of its issuer's entry" in not_believed[1]


# ---- what a client is given


async def _raises() -> str:
    raise OSError("https://login/?client_secret=hidden")


@pytest.mark.parametrize(
    "callback", [lambda: "", lambda: None, lambda: "a b", lambda: b"abc", lambda: "x" * 9_000, _raises]
)
async def test_a_callback_that_gives_no_token_is_an_error_at_the_start(tmp_path: Path, callback: Any) -> None:
    """In a sentence without what it gave or raised."""
    from certificates import Certificates

    ca = Certificates.at(tmp_path).authority.pem
    with pytest.raises(NoToken, match="the callback for tokens") as caught:
        await Admin("127.0.0.1:1", tls_ca=ca, token=callback).start()

    assert "hidden" not in str(caught.value)


def test_a_token_needs_tls_and_no_certificate(tmp_path: Path) -> None:
    """What is wrong is named with its remedy."""
    with pytest.raises(TlsWrong, match=r"token needs tls_ca: .*; give tls_ca"):
        Admin("127.0.0.1:1", token=str)
    with pytest.raises(TlsWrong, match="a token or a certificate; give tls_ca and token, or leave token out"):
        Admin("127.0.0.1:1", token=str, tls_cert="a", tls_key="b", tls_ca="c")
