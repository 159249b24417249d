"""`strandline controller migrate`: moves a store from SQLite to etcd or back, whole, with its history (C44).

Invariant: at every moment at most one of the two stores serves, and that one has everything: the target does not serve
before the source says that it has moved. Each step can be repeated, so a migration that was killed is run again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import grpc

from strandline.controller.tools.places import BackupPlace, EtcdPlace, Place, SqlitePlace
from strandline.core.control.state import ClusterState
from strandline.core.messages import Endpoint
from strandline.etcd.client import Etcd, User
from strandline.metadata.etcd import EtcdStore
from strandline.metadata.store import Mark, Marked, StoreDamaged, StoreFailed, StoreMarked
from strandline.rpc.channels import parse_endpoint
from strandline.runtime.exit_codes import ExitCode

# ---- etcd_access
# How a process reaches etcd: its members, what it shows them, and below which keys the cluster is.
#
# Invariant: files that cannot be used are refused before anything is sent; files that changed are used by the next
# connection that is opened.

DEFAULT_PREFIX = "/strandline/default"

_FILES = {
    "etcd-ca": "certificates of the authority that signed etcd's, PEM; empty: etcd is reached without TLS",
    "etcd-cert": "certificate shown to etcd",
    "etcd-key": "its key",
    "etcd-user": "name at etcd, where etcd asks for a password",
    "etcd-password-file": "file with the password",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """One cluster's keys in etcd, and what is needed to read and write them."""

    members: tuple[Endpoint, ...]
    prefix: str = DEFAULT_PREFIX
    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""

    def client(self) -> Etcd:
        """A client of these members.

        Raises:
            ValueError: a file cannot be read.
        """
        user = None
        if self.user:
            try:
                password = Path(self.password_file).read_text(encoding="utf-8").rstrip("\n")
            except OSError as error:
                raise ValueError(f"etcd_password_file cannot be read: {error}") from error
            user = User(self.user, password)
        if not self.ca:
            return Etcd(self.members, user=user)
        # Read now, so that files that cannot be used are refused at the start.
        self._credentials()
        return Etcd(self.members, credentials=self._credentials, user=user)

    def store(self) -> EtcdStore:
        """The store that is kept there; raises as `client`."""
        return EtcdStore(self.client(), self.prefix)

    def _credentials(self) -> grpc.ChannelCredentials:
        try:
            ca = Path(self.ca).read_bytes()
            key = Path(self.key).read_bytes() if self.key else None
            cert = Path(self.cert).read_bytes() if self.cert else None
        except OSError as error:
            raise ValueError(f"etcd_ca, etcd_cert or etcd_key cannot be read: {error}") from error
        return grpc.ssl_channel_credentials(ca, key, cert)


def read_members(text: str) -> tuple[Endpoint, ...]:
    """The members of etcd that a list with commas names.

    Raises:
        ValueError: an entry is no address.
    """
    return tuple(parse_endpoint(entry.strip()) for entry in text.split(",") if entry.strip())


def add_files(parser: argparse.ArgumentParser) -> None:
    """The options that say what etcd is shown; the controller's own variables are their defaults."""
    for name, description in _FILES.items():
        variable = f"STRANDLINE_{name.upper().replace('-', '_')}"
        parser.add_argument(f"--{name}", default=os.environ.get(variable, ""), help=description)


def access_of(given: argparse.Namespace, members: Sequence[Endpoint], prefix: str) -> EtcdAccess:
    """What a command that has `add_files` was given."""
    return EtcdAccess(
        members=tuple(members),
        prefix=prefix,
        ca=given.etcd_ca,
        cert=given.etcd_cert,
        key=given.etcd_key,
        user=given.etcd_user,
        password_file=given.etcd_password_file,
    )


class Step(StrEnum):
    """What a migration has done, in this order."""

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
    source: Place, target: Place, *, replaces: bool = False, reached: Callable[[Step], None] = lambda _: None
) -> ClusterState:
    """Move everything that ``source`` holds to ``target``; returns it. ``replaces``: what the target holds may go.

    Raises:
        StoreInUse: a controller has one of them.
        StoreMarked: a migration between other stores left one of them unable to serve.
        StoreFailed: nothing was moved, or it is not certain that it was; run it again.
    """
    if source.name == target.name:
        raise StoreFailed(f"{source.name} is both source and target; name two stores")
    reached(Step.BEGUN)
    async with source:
        reached(Step.SOURCE_LOCKED)
        async with target:
            reached(Step.TARGET_LOCKED)
            state = await source.read()
            if state is None:
                raise StoreFailed(f"{source.name} holds no cluster: no controller has served from it yet")
            reached(Step.SOURCE_READ)
            if not await _has_all(source, target, state):
                if source.mark is not None and not replaces:
                    raise StoreMarked(source.mark.sentence(source.name))
                await _fill(source, target, state, replaces=replaces, reached=reached)
            # From here on the source does not serve: the target is the store.
            await target.set_mark(None)
            reached(Step.TARGET_OPENED)
        reached(Step.TARGET_UNLOCKED)
    reached(Step.SOURCE_UNLOCKED)
    return state


async def _has_all(source: Place, target: Place, state: ClusterState) -> bool:
    """Whether the source has moved to this target already, and only the end of the migration is left."""
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
    source: Place, target: Place, state: ClusterState, *, replaces: bool, reached: Callable[[Step], None]
) -> None:
    await _check_target(source, target, state, replaces=replaces)
    migration_id = secrets.token_hex(16)
    await target.set_mark(Mark(Marked.PENDING, migration_id, source.name))
    reached(Step.TARGET_PENDING)
    await target.write(state)
    reached(Step.WRITTEN)
    copied = await target.read()
    reached(Step.READ_BACK)
    if not _is_same(copied, state):
        raise StoreDamaged(f"{target.name} does not hold what was written to it; {source.name} is still the store")
    reached(Step.COMPARED)
    # The commit point.
    await source.set_mark(Mark(Marked.MOVED, migration_id, target.name))
    reached(Step.SOURCE_MOVED)


def _is_same(copied: ClusterState | None, state: ClusterState) -> bool:
    """Whether two states are equal, the order of topics and of reigns included, which dictionaries do not compare."""
    return copied == state and list(copied.topics) == list(state.topics) and list(copied.reigns) == list(state.reigns)


async def _check_target(source: Place, target: Place, state: ClusterState, *, replaces: bool) -> None:
    """Refuse to overwrite what may be needed.

    Raises:
        StoreMarked: another migration to the target was not finished.
        StoreFailed: it holds a cluster.
    """
    mark = target.mark
    if mark is not None and mark.marked is Marked.PENDING:
        # It holds nothing that anybody can rely on.
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
    # What was moved away is older than what comes back.
    if mark is None and not replaces:
        raise StoreFailed(
            f"{target.name} holds cluster {theirs} at metadata offset {found.header.metadata_offset}; add --replace "
            f"to give that up for offset {state.header.metadata_offset}"
        )


def place_of(words: str, given: argparse.Namespace, *, is_source: bool) -> Place:
    """The place that a word names: ``sqlite:DIR``, ``etcd:MEMBERS[/PREFIX]``, or ``backup:FILE`` as a source.

    Raises:
        ValueError: it names none, or files of TLS cannot be read.
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
    """``migrate --from STORE --to STORE``; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller migrate",
        description="Move the controllers' store from SQLite to etcd or back, while every controller is stopped and "
        "nodes and clients go on.",
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="STORE", help="sqlite:DIR, or etcd:HOST:PORT,HOST:PORT/PREFIX"
    )
    parser.add_argument("--to", dest="target", required=True, metavar="STORE", help="the same forms")
    parser.add_argument("--replace", action="store_true", help="give up what the target holds of this cluster")
    add_files(parser)
    given = parser.parse_args(arguments)
    return move(given.source, given.target, given, replaces=given.replace)


def move(source: str, target: str, given: argparse.Namespace, *, replaces: bool) -> ExitCode:
    """Carry out the command and print its result; returns the exit code."""
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
    # Clients of etcd belong to the loop that runs.
    return await migrate(
        place_of(source, given, is_source=True), place_of(target, given, is_source=False), replaces=replaces
    )
