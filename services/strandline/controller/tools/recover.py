"""`strandline controller recover`: rebuilds the store from nodes' data directories, which are only read.

Invariant: nothing is written before every directory has been read; the old store is replaced in one transaction or not
at all (TR18).
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from strandline.controller import store_health
from strandline.controller.tools.etcd_access import DEFAULT_PREFIX, EtcdAccess, access_of, add_files, read_members
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.control.state import ClusterState
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import NodeId
from strandline.metadata.sqlite import SqliteStore
from strandline.metadata.store import StoreFailed
from strandline.rpc.convert.subscription import image_from_bytes
from strandline.runtime.exit_codes import ExitCode
from strandline.storage.checkpoint_files import CheckpointDamaged
from strandline.storage.inspect import NoMetadata, stored_metadata

META_NAME = "meta.properties"
"""The file with a data node's identity."""


def read_node_directory(path: Path) -> GivenNode:
    """The identity and the metadata in one node's data directory.

    Raises:
        Refused: INVALID_REQUEST, the directory is not a node's, or its metadata is missing or damaged.
    """
    try:
        lines = (path / META_NAME).read_text(encoding="utf-8").splitlines()
        content = _metadata(path)
    except OSError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{path} is not a data directory of a node: {error}") from error
    except CheckpointDamaged as damage:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{damage}; leave it out") from damage
    properties = dict(line.split("=", 1) for line in lines if "=" in line)
    image = image_from_bytes(content) if content is not None else None
    is_damaged = content is not None and image is None
    if is_damaged or not {"node.id", "directory.id"} <= properties.keys():
        raise Refused(ErrorCode.INVALID_REQUEST, f"{path}: metadata.snapshot or {META_NAME} is damaged; leave it out")
    return GivenNode(node_id=NodeId(int(properties["node.id"])), directory_id=properties["directory.id"], image=image)


def _metadata(path: Path) -> bytes | None:
    """The newest metadata that a node received; None if it never received any about a topic."""
    try:
        return stored_metadata(path)
    except NoMetadata:
        return None


async def recover_store(data_dir: Path, node_dirs: Sequence[Path]) -> ClusterState:
    """Replace the store's content by the nodes' metadata; return the new state.

    Raises:
        Refused: no usable directory was given.
        StoreFailed: the store is in use, or cannot be written.
    """
    given = [read_node_directory(path) for path in node_dirs]
    store = SqliteStore(data_dir)
    old = await store.open()
    try:
        state = recover(given, old)
        await store.replace(state)
    finally:
        await store.close()
    return state


async def recover_store_in_etcd(data_dir: Path, node_dirs: Sequence[Path], access: EtcdAccess) -> ClusterState:
    """Replace the content of etcd by the nodes' metadata; return the new state. No controller may run.

    The position that the controller of ``data_dir`` has seen is deleted, because that store no longer exists.

    Raises:
        Refused: no usable directory was given.
        StoreFailed: a controller holds the store, or it cannot be read or written.
        ValueError: a TLS file cannot be read.
    """
    given = [read_node_directory(path) for path in node_dirs]
    store = access.store()
    try:
        old = await store.read_for_recovery()
        state = recover(given, old)
        await store.replace(state, secrets.token_hex(16))
    finally:
        await store.close()
    (data_dir / store_health.FILE_NAME).unlink(missing_ok=True)
    return state


def main(arguments: Sequence[str]) -> ExitCode:
    """Run ``recover --data-dir DIR NODE_DIR...``; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller recover",
        description="Replace a lost or too old metadata store by what the nodes' data directories know.",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        required=True,
        help="directory of a controller that is stopped, or that refuses every call because its store is too old",
    )
    parser.add_argument("node_dirs", type=Path, nargs="+", metavar="NODE_DIR", help="data directory of a node")
    parser.add_argument(
        "--etcd-endpoints", default="", help="members of etcd, if the store is etcd; all controllers stop"
    )
    parser.add_argument("--etcd-prefix", default=DEFAULT_PREFIX, help="prefix of the cluster's keys in etcd")
    add_files(parser)
    given = parser.parse_args(arguments)
    try:
        if given.etcd_endpoints:
            access = access_of(given, read_members(given.etcd_endpoints), given.etcd_prefix)
            state = asyncio.run(recover_store_in_etcd(given.data_dir, given.node_dirs, access))
        else:
            state = asyncio.run(recover_store(given.data_dir, given.node_dirs))
    except (Refused, StoreFailed, ValueError) as error:
        _say(f"nothing was changed: {error}")
        return ExitCode.FAILED
    offline = [partition for partition in state.partitions() if partition.leader is None]
    total = sum(1 for _ in state.partitions())
    _say(f"recovered cluster {state.header.cluster_id}: {len(state.topics)} topics, {total} partitions")
    if offline:
        _say(
            f"{len(offline)} partitions have no leader, for not all of their nodes were given or none led; "
            f"`strandline topic describe --unavailable-partitions` shows them"
        )
    return ExitCode.CLEAN


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
