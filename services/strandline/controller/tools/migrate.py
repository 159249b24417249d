"""`strandline controller migrate`: moves a store from SQLite to etcd or back, whole, with its history (C44).

Invariant: at every moment at most one of the two stores serves, and it has all data: the target does not serve before
the source is marked as moved. Each step can be repeated, so a migration that was killed is simply run again.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from strandline.controller.tools.etcd_access import DEFAULT_PREFIX, access_of, add_files, read_members
from strandline.controller.tools.places import BackupPlace, EtcdPlace, SqlitePlace, StorePlace
from strandline.core.control.state import ClusterState
from strandline.metadata.store import Mark, Marked, StoreDamaged, StoreFailed, StoreMarked
from strandline.runtime.exit_codes import ExitCode


class MigrationStep(StrEnum):
    """The steps that a migration has completed, in this order."""

    BEGUN = "begun"
    SOURCE_LOCKED = "source locked"
    TARGET_LOCKED = "target locked"
    SOURCE_READ = "source read"
    TARGET_PENDING = "target pending"
    WRITTEN = "written"
    READ_BACK = "read back"
    COMPARED = "compared"
    SOURCE_MOVED = "source moved"
    TARGET_OPENED = "target opened"
    TARGET_UNLOCKED = "target unlocked"
    SOURCE_UNLOCKED = "source unlocked"


async def migrate(
    source: StorePlace,
    target: StorePlace,
    *,
    replaces: bool = False,
    reached: Callable[[MigrationStep], None] = lambda _: None,
) -> ClusterState:
    """Move the whole state from ``source`` to ``target`` and return it; ``replaces``: the target may be overwritten.

    Raises:
        StoreInUse: a controller uses one of them.
        StoreMarked: a migration with another store has marked one of them as not serving.
        StoreFailed: nothing was moved, or the outcome is unknown; run it again.
    """
    if source.name == target.name:
        raise StoreFailed(f"{source.name} is both source and target; name two stores")
    reached(MigrationStep.BEGUN)
    async with source:
        reached(MigrationStep.SOURCE_LOCKED)
        async with target:
            reached(MigrationStep.TARGET_LOCKED)
            state = await source.read()
            if state is None:
                raise StoreFailed(f"{source.name} holds no cluster: no controller has served from it yet")
            reached(MigrationStep.SOURCE_READ)
            if not await _has_all(source, target, state):
                if source.mark is not None and not replaces:
                    raise StoreMarked(source.mark.sentence(source.name))
                await _fill(source, target, state, replaces=replaces, reached=reached)
            # The source does not serve any more: from here on the target is the store.
            await target.set_mark(None)
            reached(MigrationStep.TARGET_OPENED)
        reached(MigrationStep.TARGET_UNLOCKED)
    reached(MigrationStep.SOURCE_UNLOCKED)
    return state


async def _has_all(source: StorePlace, target: StorePlace, state: ClusterState) -> bool:
    """Whether the source has already moved to this target, and only the last steps are left."""
    moved, pending = source.mark, target.mark
    if moved is None or moved.marked is not Marked.MOVED:
        return False
    if pending is not None:
        return pending.marked is Marked.PENDING and pending.migration_id == moved.migration_id
    found = await target.read()
    return (
        found is not None
        and moved.elsewhere == target.name
        and found.header.cluster_id == state.header.cluster_id
        and found.header.metadata_offset >= state.header.metadata_offset
    )


async def _fill(
    source: StorePlace,
    target: StorePlace,
    state: ClusterState,
    *,
    replaces: bool,
    reached: Callable[[MigrationStep], None],
) -> None:
    await _check_target(source, target, state, replaces=replaces)
    migration_id = secrets.token_hex(16)
    await target.set_mark(Mark(Marked.PENDING, migration_id, source.name))
    reached(MigrationStep.TARGET_PENDING)
    await target.write(state)
    reached(MigrationStep.WRITTEN)
    copied = await target.read()
    reached(MigrationStep.READ_BACK)
    if not _is_same(copied, state):
        raise StoreDamaged(f"{target.name} does not hold what was written to it; {source.name} is still the store")
    reached(MigrationStep.COMPARED)
    # The commit point.
    await source.set_mark(Mark(Marked.MOVED, migration_id, target.name))
    reached(MigrationStep.SOURCE_MOVED)


def _is_same(copied: ClusterState | None, state: ClusterState) -> bool:
    """Whether two states are equal, including the order of topics and reigns, which dictionaries do not compare."""
    return copied == state and list(copied.topics) == list(state.topics) and list(copied.reigns) == list(state.reigns)


async def _check_target(source: StorePlace, target: StorePlace, state: ClusterState, *, replaces: bool) -> None:
    """Refuse to overwrite data that may be needed.

    Raises:
        StoreMarked: another migration to the target was not finished.
        StoreFailed: the target holds a cluster.
    """
    mark = target.mark
    if mark is not None and mark.marked is Marked.PENDING:
        # A half-migrated store holds nothing that a cluster relies on.
        if mark.elsewhere == source.name or replaces:
            return
        raise StoreMarked(f"{mark.sentence(target.name)}; or add --replace to give that migration up")
    found = await target.read()
    if found is None or not (found.nodes or found.removed_nodes or found.topics):
        return
    theirs, ours = found.header.cluster_id, state.header.cluster_id
    if theirs != ours:
        raise StoreFailed(
            f"{target.name} holds cluster {theirs}, {source.name} cluster {ours}; name another directory or prefix"
        )
    # A target marked as moved may be overwritten: its state is older than the one that comes back.
    if mark is None and not replaces:
        raise StoreFailed(
            f"{target.name} holds cluster {theirs} at metadata offset {found.header.metadata_offset}; add --replace "
            f"to give that up for offset {state.header.metadata_offset}"
        )


def place_of(words: str, given: argparse.Namespace, *, is_source: bool) -> StorePlace:
    """The place that a text names: ``sqlite:DIR``, ``etcd:MEMBERS[/PREFIX]``, or ``backup:FILE`` as a source.

    Raises:
        ValueError: it names none, or TLS files cannot be read.
    """
    kind, _, where = words.partition(":")
    if kind == "sqlite" and where:
        return SqlitePlace(Path(where), is_source=is_source)
    if kind == "backup" and where and is_source:
        return BackupPlace(Path(where))
    members, _, prefix = where.partition("/")
    if kind == "etcd" and members:
        return EtcdPlace(access_of(given, read_members(members), f"/{prefix}" if prefix else DEFAULT_PREFIX))
    forms = "sqlite:DIR or etcd:HOST:PORT,HOST:PORT/PREFIX" + (" or backup:FILE" if is_source else "")
    raise ValueError(f"{words!r} names no store; write {forms}")


def main(arguments: Sequence[str]) -> ExitCode:
    """Run ``migrate --from STORE --to STORE``; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller migrate",
        description="Move the controllers' store from SQLite to etcd or back, while every controller is stopped and "
        "nodes and clients go on.",
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="STORE", help="sqlite:DIR, or etcd:HOST:PORT,HOST:PORT/PREFIX"
    )
    parser.add_argument("--to", dest="target", required=True, metavar="STORE", help="the same forms")
    parser.add_argument("--replace", action="store_true", help="discard what the target has of this cluster")
    add_files(parser)
    given = parser.parse_args(arguments)
    return move(given.source, given.target, given, replaces=given.replace)


def move(source: str, target: str, given: argparse.Namespace, *, replaces: bool) -> ExitCode:
    """Move the store and print the result; return the exit code."""
    try:
        state = asyncio.run(_move(source, target, given, replaces=replaces))
    except ValueError as error:
        sys.stderr.write(f"strandline: {error}\n")
        return ExitCode.USAGE
    except StoreFailed as error:
        sys.stderr.write(f"strandline: not migrated: {error}\n")
        return ExitCode.FAILED
    header, partitions = state.header, sum(1 for _ in state.partitions())
    sys.stdout.write(
        f"cluster {header.cluster_id} at metadata offset {header.metadata_offset} is in {target}: "
        f"{len(state.topics)} topics, {partitions} partitions, {len(state.nodes)} nodes\n"
    )
    return ExitCode.CLEAN


async def _move(source: str, target: str, given: argparse.Namespace, *, replaces: bool) -> ClusterState:
    # The places are made here because clients of etcd belong to the running event loop.
    return await migrate(
        place_of(source, given, is_source=True), place_of(target, given, is_source=False), replaces=replaces
    )
