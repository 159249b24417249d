"""The analytics server with TLS: clients may call it, nodes and strangers may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from certificates import Certificates, settings_of

from strandline.core.messages import Endpoint
from strandline.rpc.channels import open_channel
from strandline.rpc.tls import Tls
from strandline.v1 import analytics_service_pb2 as pb
from strandline.v1 import analytics_service_pb2_grpc as pb_grpc
from strandline_analytics.service.process import AnalyticsServer
from strandline_analytics.service.settings import AnalyticsSettings
from strandline_analytics.tables.destination import Destination

DEADLINE_S = 10


async def _ask(endpoint: Endpoint, tls: Tls | None) -> str:
    async with open_channel(endpoint, tls=tls) as channel:
        stub: Any = pb_grpc.AnalyticsServiceStub(channel)
        try:
            await stub.ListStats(pb.ListStatsRequest(), timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("own", ["client/analytics", "admin/analytics"])
async def test_clients_ask_and_nobody_else(tmp_path: Path, own: str) -> None:
    """Clients and administrators may call the server, whose own certificate is a client's with hosts."""
    made = Certificates.at(tmp_path / "certs")
    (tmp_path / "export").mkdir()
    settings = AnalyticsSettings(
        inputs=(str(tmp_path / "export"),),
        destination=Destination(out=str(tmp_path / "results")),
        **cast(Any, settings_of(made.files(own))),
    )
    # Spark computes answers; no request here needs one.
    server = AnalyticsServer(settings, cast(Any, None))
    endpoint = await server.start()
    try:
        found = {who: await _ask(endpoint, made.tls(who)) for who in ("client/x", "admin/x", "replica/1")}
        found["nobody"] = await _ask(endpoint, None)
    finally:
        await server.shut_down()

    assert found == {"client/x": "OK", "admin/x": "OK", "replica/1": "PERMISSION_DENIED", "nobody": "UNAVAILABLE"}
