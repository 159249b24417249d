"""Our transport speaks gRPC with grpc-go and grpcio, in both directions, and HTTP/2 as h2spec checks it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificates
from go_tools import h2spec, interop_client, interop_server
from interop_cases import CASES
from interop_service import handlers

from strandline import transport

TRANSPORTS: dict[str, Any] = {"ours": transport, "grpcio": grpc.aio}
GO_CASES = (
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
    "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
    "special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service", "pick_first_unary",
    "rpc_soak", "channel_soak",
)  # fmt: skip
CALL_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


Serving = Callable[..., Awaitable[int]]


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    """Start the service on one of the transports, with TLS if there is a certificate; returns its port."""
    servers = []

    async def start(name: str, certificates: Certificates | None = None) -> int:
        server = TRANSPORTS[name].server()
        server.add_generic_rpc_handlers((handlers(),))
        port: int
        if certificates is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            files = certificates.files("replica/1")
            # As the product's, but for the client's certificate, which foreign clients do not have.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files.cert, files.key)
            context.set_alpn_protocols(["h2"])
            port = server.add_secure_port("127.0.0.1:0", transport.Security(lambda: context))
        await server.start()
        servers.append(server)
        return port

    yield start
    for server in servers:
        await server.stop(0)


@pytest.mark.parametrize("case", GO_CASES)
async def test_a_client_of_grpc_go_is_served(case: str, serving: Serving) -> None:
    """grpc-go's client finds that our server does what the case demands."""
    port = await serving("ours")
    words = ["-server_host", "127.0.0.1", "-server_port", str(port), "-test_case", case]

    code, output = await _ran(interop_client(), *words)

    assert code == 0, output


@pytest.mark.parametrize("case", ["large_unary", "ping_pong"])
async def test_a_client_of_grpc_go_is_served_over_tls(case: str, serving: Serving, tmp_path: Path) -> None:
    """grpc-go's client finds the same where TLS carries the connection."""
    certificates = Certificates.at(tmp_path)
    port = await serving("ours", certificates)
    ca = certificates.files("admin/1").ca
    words = ["-server_host", "127.0.0.1", "-server_host_override", "localhost", "-use_tls", "-use_test_ca"]

    code, output = await _ran(
        interop_client(), *words, "-ca_file", str(ca), "-server_port", str(port), "-test_case", case
    )

    assert code == 0, output


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize(("client", "server"), [("ours", "grpcio"), ("grpcio", "ours"), ("ours", "ours")])
async def test_a_channel_gets_what_the_case_demands(
    case: Callable[[grpc.aio.Channel], Awaitable[None]],
    client: str,
    server: str,
    serving: Serving,
) -> None:
    """Channel and server agree on the case, whichever of the two is ours."""
    async with TRANSPORTS[client].insecure_channel(f"127.0.0.1:{await serving(server)}") as channel:
        await case(channel)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_server_of_grpc_go_answers(case: Callable[[grpc.aio.Channel], Awaitable[None]]) -> None:
    """Our channel gets from grpc-go's server what the case demands."""
    process = await asyncio.create_subprocess_exec(interop_server(), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(await asyncio.wait_for(process.stdout.readline(), CALL_S))
        async with transport.insecure_channel(f"127.0.0.1:{port}") as channel:
            await case(channel)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
async def test_every_case_of_h2spec_passes(
    with_tls: bool, serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No case of h2spec fails or is skipped, strict ones included."""
    # h2spec's frame that is too large is one of more than HTTP/2's first limit.
    monkeypatch.setattr("strandline.transport.connection.OUR_FRAME", 16384)
    report = tmp_path / "report.xml"
    port = await serving("ours", Certificates.at(tmp_path) if with_tls else None)
    words = ["--strict", "--timeout", "5", "-h", "127.0.0.1", "-p", str(port), "--junit-report", str(report)]

    _, output = await _ran(h2spec(), *words, *(("-t", "-k") if with_tls else ()))
    cases = [
        (suite.get("id"), case.get("classname"), {part.tag for part in case} & {"failure", "error", "skipped"})
        for suite in ElementTree.parse(report).getroot().iter("testsuite")
        for case in suite.iter("testcase")
    ]
    bad = [(section, what, sorted(how)) for section, what, how in cases if how]
    print(f"h2spec: {len(cases)} cases, {len(bad)} failed or skipped")

    assert not bad, output[-8000:]
    assert len(cases) > 140


async def _ran(program: Path, *words: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(program, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = await asyncio.wait_for(process.communicate(), 5 * CALL_S)
    return process.returncode, output.decode()
