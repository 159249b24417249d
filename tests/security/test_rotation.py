"""Certificates change while processes run: new ones are used at the next connection, bad ones change nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from certificates import Certificates, serial_in, shown_serial
from cryptography import x509
from guarded_service import guarded, stub

from strandline.cli.local.authority import new_authority
from strandline.rpc.channels import Channels
from strandline.rpc.tls import TlsFiles
from strandline.v1 import leader_service_pb2 as pb, leader_service_pb2_grpc as pb_grpc

pytestmark = pytest.mark.usefixtures("carried_by")

DEADLINE_S = 5


async def _echo(request: Any, context: Any) -> pb.ProduceResponse:
    """Returns the serial number of the caller's certificate."""
    shown = x509.load_pem_x509_certificate(context.auth_context()["x509_pem_cert"][0])
    answer = pb.ProduceResponse()
    answer.responses.add(name=f"{shown.serial_number:X}")
    return answer


async def _serial_seen(stub_: Any) -> str:
    answer: pb.ProduceResponse = await stub_.Produce(pb.ProduceRequest(), timeout=DEADLINE_S)
    return answer.responses[0].name


async def test_a_server_shows_its_new_certificate_to_the_next_caller(made: Certificates) -> None:
    """No restart: existing connections continue, connections after the change get the new certificate."""
    client = made.tls("client/x")
    probe = made.files("client/probe")
    server = made.tls("replica/1")
    async with guarded(server, Produce=_echo) as endpoint, stub(endpoint, client) as before:
        await _serial_seen(before)
        old = await asyncio.to_thread(shown_serial, endpoint, probe)
        renewed = made.files("replica/1")

        shown = await asyncio.to_thread(shown_serial, endpoint, probe)
        await _serial_seen(before)

    assert shown == serial_in(renewed)
    assert shown != old


async def test_a_caller_shows_its_new_certificate_on_the_next_channel(made: Certificates) -> None:
    """After the files change `Channels` dials with the new certificate; calls in progress continue."""
    server, client = made.tls("replica/1"), made.tls("client/x")
    async with guarded(server, Produce=_echo) as endpoint:
        channels = Channels(tls=client)
        first = pb_grpc.LeaderServiceStub(channels.to(endpoint))
        seen_first = await _serial_seen(first)
        renewed = made.files("client/x")

        second = pb_grpc.LeaderServiceStub(channels.to(endpoint))
        seen_second = await _serial_seen(second)
        still = await _serial_seen(first)
        await channels.close()

    assert (seen_second, still) == (serial_in(renewed), seen_first)
    assert seen_first != seen_second


async def test_a_channel_of_two_rotations_ago_is_closed(made: Certificates) -> None:
    """Old channels do not accumulate: the one before the last is gone after the next use."""
    server, client = made.tls("replica/1"), made.tls("client/x")
    async with guarded(server, Produce=_echo) as endpoint:
        channels = Channels(tls=client)
        kept = []
        for _ in range(3):
            kept.append(pb_grpc.LeaderServiceStub(channels.to(endpoint)))
            await _serial_seen(kept[-1])
            made.files("client/x")
        channels.to(endpoint)
        await channels.close()

        with pytest.raises(grpc.aio.UsageError, match="closed"):
            await _serial_seen(kept[0])


async def test_a_new_authority_takes_over_in_two_steps(made: Certificates) -> None:
    """First both are trusted and both kinds of certificate served; then the new one alone, and the old is rejected."""
    old, new = made.authority, new_authority("c1", 1)
    both = old.pem + new.pem
    server = made.tls("replica/1", believes=both)
    of_old, of_new = made.tls("client/old", believes=both), made.tls("client/new", signed_by=new, believes=both)
    async with guarded(server, Produce=_echo) as endpoint:
        async with stub(endpoint, of_old) as one, stub(endpoint, of_new) as other:
            assert await _serial_seen(one) != await _serial_seen(other)

        made.files("replica/1", signed_by=new, believes=new.pem)

        async with stub(endpoint, of_new) as other:
            await _serial_seen(other)
        async with stub(endpoint, of_old) as one:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _serial_seen(one)

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("wrong", ["foreign", "no pem", "absent", "another identity"])
async def test_a_bad_new_file_changes_nothing_but_one_line(
    made: Certificates, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The old certificate stays in use, new connections are served, and the log reports once what is wrong."""
    server, client = made.tls("replica/1"), made.tls("client/x")
    files = made.files("replica/1")
    async with guarded(server, Produce=_echo) as endpoint:
        async with stub(endpoint, client) as one:
            await _serial_seen(one)
        caplog.clear()
        _spoil(made, files, wrong)
        for _ in range(3):
            async with stub(endpoint, client) as one:
                await _serial_seen(one)
        said = [line for line in caplog.records if line.name == "strandline.tls"]
        made.files("replica/1")
        async with stub(endpoint, client) as one:
            await _serial_seen(one)

    assert [(line.levelname, line.message) for line in said] == [
        ("ERROR", "the new certificate is not used, the old one stays")
    ]
    # The first files, those at the start of the test, and the last: a bad one does not count.
    assert server.generation == 3


def _spoil(made: Certificates, files: TlsFiles, wrong: str) -> None:
    if wrong == "foreign":
        made.files("replica/1", signed_by=new_authority("c1", 1))
    elif wrong == "no pem":
        files.cert.write_bytes(b"half a certifi")
    elif wrong == "absent":
        files.key.unlink()
    else:
        other = made.files("replica/2")
        files.cert.write_bytes(other.cert.read_bytes())
        files.key.write_bytes(other.key.read_bytes())
