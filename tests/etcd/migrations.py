"""Stores to migrate, and a migration that ends by kill -9 behind one of its steps."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from argparse import Namespace
from pathlib import Path

from strandline.controller.tools import migrate
from strandline.controller.tools.etcd_access import EtcdAccess
from strandline.controller.tools.migrate import MigrationStep
from strandline.controller.tools.places import EtcdPlace, StorePlace
from strandline.core.control.state import (
    ClusterHeader,
    ClusterState,
    NodeRecord,
    ReignRecord,
    RemovedNode,
    TopicRecord,
    Transaction,
)
from strandline.core.messages import Endpoint, NodeImage, PartitionImage
from strandline.core.types import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.etcd.members import Members
from strandline.metadata.documents import state_of
from strandline.metadata.sqlite import SqliteStore
from strandline.metadata.store import StoreFailed
from strandline.rpc.channels import target

_WITHOUT_FILES = Namespace(etcd_ca="", etcd_cert="", etcd_key="", etcd_user="", etcd_password_file="")


def cluster(partitions: int = 3) -> ClusterState:
    """A cluster with something of everything that a store keeps, in an order that is not the alphabet's."""
    nodes = [NodeId(number) for number in (1, 2, 3)]
    topics = [TopicRecord(name=name, topic_id=f"id-{name}", configs=(("min.insync.replicas", "2"),)) for name in "ba"]
    return state_of(
        Transaction(
            header=ClusterHeader(
                cluster_id="c", controller_epoch=4, metadata_offset=90, next_node_epoch=12, secret="s"
            ),
            removed_nodes=(RemovedNode(node_id=NodeId(9), node_epoch=NodeEpoch(2), directory_id="gone"),),
            nodes=tuple(
                NodeRecord(
                    image=NodeImage(
                        node_id=node,
                        node_epoch=NodeEpoch(node + 7),
                        client_endpoint=Endpoint("127.0.0.1", 1),
                        internal_endpoint=Endpoint("127.0.0.1", 2),
                    ),
                    incarnation_id=f"i{node}",
                    directory_id=f"d{node}",
                )
                for node in nodes
            ),
            topics=tuple(topics),
            partitions=tuple(
                PartitionImage(
                    tp=TopicPartition(topic.topic_id, index),
                    replicas=tuple(nodes),
                    isr=tuple(nodes[:2]),
                    elr=(),
                    leader=nodes[index % 2],
                    leader_epoch=LeaderEpoch(index + 1),
                    partition_epoch=PartitionEpoch(index + 5),
                    min_isr=2,
                )
                for topic in topics
                for index in range(partitions)
            ),
            deleted_topic_ids=("id-gone",),
            reigns=(
                ReignRecord(reign_id="f" * 32, controller_epoch=3, first_offset=1, last_offset=50),
                ReignRecord(reign_id="a" * 32, controller_epoch=4, first_offset=51, previous_reign_id="f" * 32),
            ),
        )
    )


async def store_of(directory: Path, state: ClusterState) -> None:
    """A controller's directory that holds this."""
    store = SqliteStore(directory)
    try:
        await store.open()
        await store.replace(state)
    finally:
        await store.close()


def sqlite(directory: Path) -> str:
    """A directory in the words of the command."""
    return f"sqlite:{directory}"


def etcd(members: Members, prefix: str) -> str:
    """Keys of etcd in the words of the command."""
    return f"etcd:{','.join(map(target, members.endpoints))}{prefix}"


def place(words: str, *, is_source: bool) -> StorePlace:
    """What the command makes of its words."""
    return migrate.place_of(words, _WITHOUT_FILES, is_source=is_source)


async def moved(source: str, to: str, *, replaces: bool = False) -> ClusterState:
    return await migrate.migrate(place(source, is_source=True), place(to, is_source=False), replaces=replaces)


async def killed(source: str, to: str, behind: MigrationStep) -> None:
    """A migration in a process of its own, which ends by SIGKILL as soon as it has done one step."""
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, source, to, behind)
    try:
        async with asyncio.timeout(60):
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    assert code == -signal.SIGKILL, f"{behind}: ended with {code}"


async def served(words: str) -> ClusterState | StoreFailed:
    """What a controller finds that would serve from this store now, or why it refuses."""
    kind, _, where = words.partition(":")
    try:
        if kind == "sqlite":
            store = SqliteStore(Path(where))
            try:
                state = await store.open()
            finally:
                await store.close()
        else:
            state = await _served_from_etcd(where)
    except StoreFailed as refused:
        return refused
    assert state is not None
    return state


async def _served_from_etcd(where: str) -> ClusterState | None:
    members, _, prefix = where.partition("/")
    endpoints = tuple(Endpoint(host, int(port)) for host, _, port in (one.partition(":") for one in members.split(",")))
    store = EtcdAccess(members=endpoints, prefix=f"/{prefix}").store()
    try:
        await store.open("another")
        return await store.read_state()
    finally:
        await store.close()


async def lease_ended(words: str) -> None:
    """The lease of a process that was killed is over, as it is by itself some seconds later."""
    here = place(words, is_source=True)
    if not isinstance(here, EtcdPlace):
        return
    store = here._store
    try:
        holder = (await store.read()).holder
        if holder is not None:
            await store.revoke(holder.lease_id)
    finally:
        await store.close()


async def _run(source: str, to: str, behind: MigrationStep) -> None:
    def reached(step: MigrationStep) -> None:
        if step is behind:
            os.kill(os.getpid(), signal.SIGKILL)

    await migrate.migrate(place(source, is_source=True), place(to, is_source=False), reached=reached)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2], MigrationStep(sys.argv[3])))
