"""Runs a data node: `python -m strandline.node --node-id 1 --data-dir DIR --controllers HOST:PORT`.

Invariant: every way to end has an exit code (`runtime.exit_codes`) and prints one line with the reason.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from strandline.core.errors import Refused
from strandline.core.types import NodeId
from strandline.node.node import ReplicaNode
from strandline.node.settings import ReplicaSettings
from strandline.node.workers import Supervisor, WorkersWrong, single_node_refusal, workers_of
from strandline.rpc import transports
from strandline.rpc.permissions import CallerRole
from strandline.rpc.server import PortTaken, open_tokens
from strandline.rpc.tls import TlsWrong, open_tls
from strandline.runtime.exit_codes import ExitCode, require_assertions, stop_process
from strandline.runtime.process import keep_what_is_loaded, raise_open_file_limit, run_service
from strandline.runtime.settings import SettingsWrong, load_settings, parse_flags
from strandline.storage.directory import DataDirectory, DirectoryRefused
from strandline.storage.disk import StorageDamaged, StorageFailed


async def run_node(settings: ReplicaSettings, directory: DataDirectory, stop_asked: asyncio.Event) -> ExitCode:
    """Run a node until it is asked to stop."""
    node = ReplicaNode(settings, directory)
    starting = asyncio.create_task(node.start())
    asked = asyncio.create_task(stop_asked.wait())
    await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # Nothing was acknowledged yet, so there is no leadership to hand over.
        stop_process(ExitCode.CLEAN, "asked to stop before the node was registered")
    try:
        starting.result()
    except PortTaken as error:
        stop_process(ExitCode.PORT_TAKEN, str(error))
    except TlsWrong as error:
        stop_process(ExitCode.USAGE, str(error))
    except StorageFailed as error:
        stop_process(ExitCode.STORAGE_FAILED, str(error))
    except StorageDamaged as error:
        directory.mark_unclean(str(error))
        stop_process(ExitCode.STORAGE_DAMAGED, str(error))
    keep_what_is_loaded()
    released = asyncio.create_task(node.session.released())
    await asyncio.wait({asked, released}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    released.cancel()
    return await node.shut_down()


def _run_workers(settings: ReplicaSettings, arguments: Sequence[str]) -> int:
    try:
        workers = workers_of(settings)
    except WorkersWrong as error:
        stop_process(ExitCode.USAGE, str(error))
    return Supervisor(workers, arguments, shutdown_deadline_s=settings.shutdown_deadline_ms / 1_000).run()


def _check_certificate(settings: ReplicaSettings) -> None:
    """Check the TLS files before the directory is opened, so that a failure leaves a clean directory clean.

    Raises:
        TlsWrong: the files cannot be used, or name another node.
    """
    tls = open_tls(settings.tls_cert, settings.tls_key, settings.tls_ca)
    if tls is not None:
        tls.must_be(CallerRole.REPLICA, name=str(settings.node_id))
    open_tokens(settings.token_issuers, tls)


def main(arguments: Sequence[str]) -> int:
    """Read the settings, lock the directory and run the node, or run several workers; return the exit code."""
    require_assertions()
    raise_open_file_limit()
    flags, file = parse_flags(ReplicaSettings, "strandline replica", arguments)
    try:
        settings = load_settings(ReplicaSettings, flags=flags, file=file).settings
    except SettingsWrong as error:
        stop_process(ExitCode.USAGE, str(error))
    transports.use(settings.grpc_transport)
    if settings.workers > 1:
        return _run_workers(settings, arguments)
    if refusal := single_node_refusal(settings.data_dir):
        stop_process(ExitCode.USAGE, refusal)
    try:
        _check_certificate(settings)
    except TlsWrong as error:
        stop_process(ExitCode.USAGE, str(error))
    try:
        directory = DataDirectory.open(
            settings.data_dir,
            node_id=NodeId(settings.node_id),
            durability=settings.durability,
            low_space_bytes=settings.low_space_bytes,
        )
    except (DirectoryRefused, Refused) as error:
        stop_process(ExitCode.DIRECTORY_IN_USE, str(error))
    except StorageFailed as error:
        stop_process(ExitCode.STORAGE_FAILED, str(error))
    return run_service(
        lambda stop_asked: run_node(settings, directory, stop_asked),
        log_format=settings.log_format,
        log_level=settings.log_level,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
