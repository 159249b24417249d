"""`strandline controller hand-over`: asks the controller that decides to leave that to another one (C22)."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

import grpc

from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import Endpoint
from strandline.rpc.channels import Channels, call, parse_endpoint
from strandline.rpc.convert_controllers import read_controllers
from strandline.rpc.tls import Tls, open_tls
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as pb
from strandline.v1 import controller_service_pb2_grpc as pb_grpc

_DEADLINE_MS = 5_000


async def hand_over(bootstrap: Sequence[Endpoint], to: str | None, tls: Tls | None) -> str:
    """Have the active controller, whom any controller names, hand over; returns its id.

    Raises:
        Refused: nobody decides, or there is no such successor; or no controller was reached.
    """
    channels = Channels(tls=tls)
    try:
        active = await _active(channels, bootstrap)
        request = pb.HandOverRequest(to=to)
        answer = await call(_stub(channels.to(active)).HandOver, request, deadline_ms=_DEADLINE_MS)
        return str(answer.controller_id)
    finally:
        await channels.close()


async def _active(channels: Channels, bootstrap: Sequence[Endpoint]) -> Endpoint:
    failure: Refused | None = None
    for endpoint in bootstrap:
        try:
            method = _stub(channels.to(endpoint)).DescribeControllers
            answer = await call(method, pb.DescribeControllersRequest(), deadline_ms=_DEADLINE_MS)
        except Refused as refused:
            failure = refused
            continue
        for controller in read_controllers(answer):
            if controller.is_active:
                return controller.client
    raise failure or Refused(
        ErrorCode.NOT_CONTROLLER, "no controller decides now; `strandline cluster status` says more"
    )


def _stub(channel: grpc.aio.Channel) -> Any:
    return pb_grpc.ControllerServiceStub(channel)


def main(arguments: Sequence[str]) -> ExitCode:
    """``hand-over [--to ID] --bootstrap ADDRESSES``; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller hand-over",
        description="Have the controller that decides leave that to another one.",
    )
    parser.add_argument("--to", metavar="ID", help="controller_id of the successor; any standby without it")
    parser.add_argument(
        "--bootstrap",
        default=os.environ.get("STRANDLINE_BOOTSTRAP", "127.0.0.1:9090"),
        help="addresses of controllers, host:port with commas",
    )
    for name in ("tls-cert", "tls-key", "tls-ca"):
        parser.add_argument(f"--{name}", default=os.environ.get(f"STRANDLINE_{name.upper().replace('-', '_')}", ""))
    given = parser.parse_args(arguments)
    try:
        endpoints = [parse_endpoint(entry.strip()) for entry in given.bootstrap.split(",") if entry.strip()]
        tls = open_tls(given.tls_cert, given.tls_key, given.tls_ca)
        left = asyncio.run(hand_over(endpoints, given.to, tls))
    except ValueError as error:
        sys.stderr.write(f"strandline: {error}\n")
        return ExitCode.USAGE
    except Refused as refused:
        sys.stderr.write(f"strandline: nothing was handed over: {refused}\n")
        return ExitCode.FAILED
    sys.stdout.write(f"{left} decides no more\n")
    return ExitCode.CLEAN
