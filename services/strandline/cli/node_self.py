"""`strandline node shutdown --self`: the node of this data directory hands over what it leads, and the command waits.

Invariant: it speaks for one process and no other. Which one stands in the directory that the settings name, with the
node epoch that the controller gave it; a directory that a later process has taken over belongs to that one.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed
from strandline.cli.processes import ENDPOINT_FILE

if TYPE_CHECKING:
    from strandline.core.errors import ErrorCode
    from strandline.core.messages import Endpoint
    from strandline.node.settings import ReplicaSettings
    from strandline.rpc.tls import Tls

_ASK_EVERY_S = 0.1
_CALL_MS = 2_000


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The process that serves a data directory, as the controller knows it."""

    node_id: int
    node_epoch: int


async def leave(deadline_s: float) -> str:
    """Ask the controller to move away what this node leads; returns the sentence to print once it leads nothing.

    Raises:
        CommandFailed: the settings are wrong, nobody answered, or leaders were left at the deadline.
    """
    settings = _own_settings()
    found = running_node(settings.data_dir)
    if found is None:
        return f"no node runs on {settings.data_dir}; there is nothing to hand over"
    until = time.monotonic() + deadline_s
    left = await _hand_over(settings, found, until)
    if left is None:
        return f"node {found.node_id} is not this process any more; there is nothing to hand over"
    if left:
        raise CommandFailed(
            f"node {found.node_id} still leads {left} partitions after {deadline_s:g} s: no other replica of theirs is "
            f"in sync; `strandline topic describe` shows them"
        )
    return f"node {found.node_id} leads nothing any more"


def _own_settings() -> ReplicaSettings:
    from strandline.node.settings import ReplicaSettings
    from strandline.runtime.settings import SettingsWrong, load_settings

    try:
        return load_settings(ReplicaSettings, flags={}, variables=os.environ).settings
    except SettingsWrong as error:
        raise CommandFailed(
            f"--self reads the node's own settings from STRANDLINE_ variables: {error}", EXIT_UNREACHABLE
        ) from error


def running_node(directory: Path) -> Incarnation | None:
    """The process that wrote its endpoint into ``directory``, if that very process runs where we run."""
    from strandline.runtime.process import started_ticks

    try:
        written = json.loads((directory / ENDPOINT_FILE).read_text())
        pid, started = int(written["pid"]), int(written["started_ticks"])
        found = Incarnation(node_id=int(written["node_id"]), node_epoch=int(written["node_epoch"]))
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return None
    return found if started_ticks(pid) == started else None


async def _hand_over(settings: ReplicaSettings, node: Incarnation, until: float) -> int | None:
    """Ask until the node leads nothing: how many partitions are left; None if it is not the registered process."""
    from strandline.core.errors import Refused

    tls = _tls(settings)
    left, failure = 1, "not asked"
    while True:
        for address in settings.bootstrap():
            try:
                left, failure = await _ask(address, tls, node), ""
                break
            except Refused as error:
                if error.refusal.code in _gone():
                    return None
                failure = str(error.refusal)
        if left == 0:
            return 0
        if time.monotonic() + _ASK_EVERY_S > until:
            break
        await asyncio.sleep(_ASK_EVERY_S)
    if failure:
        raise CommandFailed(f"no controller took the shutdown of node {node.node_id}: {failure}", EXIT_UNREACHABLE)
    return left


async def _ask(address: Endpoint, tls: Tls | None, node: Incarnation) -> int:
    """ShutdownNode for this incarnation; the number of partitions it still leads."""
    from strandline.client.administer.admin_answers import check
    from strandline.rpc.channels import call, open_channel
    from strandline.v1 import controller_service_pb2 as pb
    from strandline.v1 import controller_service_pb2_grpc as pb_grpc

    request = pb.ShutdownNodeRequest(node_id=node.node_id, node_epoch=node.node_epoch)
    async with open_channel(address, tls=tls) as channel:
        stub = pb_grpc.ControllerServiceStub(channel)
        answer = await call(stub.ShutdownNode, request, deadline_ms=_CALL_MS)
    check(answer)
    return sum(len(topic.partitions) for topic in answer.remaining_partitions)


def _tls(settings: ReplicaSettings) -> Tls | None:
    from strandline.rpc.tls import TlsWrong, open_tls

    try:
        return open_tls(settings.tls_cert, settings.tls_key, settings.tls_ca)
    except TlsWrong as error:
        raise CommandFailed(str(error), EXIT_UNREACHABLE) from error


def _gone() -> tuple[ErrorCode, ...]:
    """A newer process registered under this id, or the controller never heard of it."""
    from strandline.core.errors import ErrorCode

    return (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
