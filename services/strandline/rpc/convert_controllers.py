"""Controllers on the wire: what `DescribeControllers` says of each.

Invariant: a list is in the order of the ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.core.messages import Endpoint
from strandline.v1 import controller_service_pb2 as pb


class ControllerDescribed(NamedTuple):
    """One controller, as any of them describes it."""

    controller_id: str
    client: Endpoint
    internal: Endpoint
    is_active: bool
    offset: int
    lag: int


def write_controllers(controllers: Iterable[ControllerDescribed]) -> pb.DescribeControllersResponse:
    """The answer."""
    message = pb.DescribeControllersResponse()
    for one in sorted(controllers):
        described = message.controllers.add(
            controller_id=one.controller_id, is_active=one.is_active, metadata_offset=one.offset, lag=one.lag
        )
        described.client.host, described.client.port = one.client
        described.internal.host, described.internal.port = one.internal
    return message


def read_controllers(message: pb.DescribeControllersResponse) -> tuple[ControllerDescribed, ...]:
    """The controllers of an answer."""
    return tuple(
        ControllerDescribed(
            one.controller_id,
            Endpoint(one.client.host, one.client.port),
            Endpoint(one.internal.host, one.internal.port),
            one.is_active,
            one.metadata_offset,
            one.lag,
        )
        for one in message.controllers
    )
