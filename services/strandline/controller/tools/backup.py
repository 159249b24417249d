"""`strandline controller backup`: makes a complete copy of the store, whether controllers run or not (C45).

A running controller locks its SQLite store, so no other process can read it. It is asked by SIGUSR1 to write a copy,
but only after a check that it has exactly this file open. A store in etcd is read as of one revision.
Invariant: every backup was read back, and is the same kind of file from either store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from strandline.controller.process import COPY_NAME, ENDPOINT_NAME
from strandline.controller.tools.etcd_access import DEFAULT_PREFIX, EtcdAccess, access_of, add_files, read_members
from strandline.controller.tools.migrate import move
from strandline.core.control.state import ClusterState
from strandline.metadata.sqlite import FILE_NAME, SqliteStore, sync
from strandline.metadata.store import StoreFailed, StoreInUse
from strandline.runtime.exit_codes import ExitCode

_COPY_S = 30.0
_LOOK_EVERY_S = 0.05


async def back_up(data_dir: Path, target: Path) -> ClusterState:
    """Write a copy of the store in ``data_dir`` to ``target``; return the state in the copy.

    Raises:
        StoreFailed: there is no store, ``target`` exists, or no copy could be made; the message says which.
    """
    _refuse(data_dir, target)
    store = SqliteStore(data_dir)
    try:
        await store.open()
    except StoreInUse:
        await _ask(data_dir)
        _keep(data_dir / COPY_NAME, target)
    else:
        await store.copy_to(target)
    finally:
        await store.close()
    return await _read_back(target)


async def back_up_etcd(access: EtcdAccess, target: Path) -> ClusterState:
    """Write the state in etcd to ``target``, whether controllers run or not; return the state in the copy.

    Raises:
        StoreFailed: etcd does not answer or holds no cluster, ``target`` exists or cannot be written.
        ValueError: a TLS file cannot be read.
    """
    _refuse_existing(target)
    store = access.store()
    try:
        state = await store.read_state()
    finally:
        await store.close()
    if state is None:
        raise StoreFailed(f"{store.place} holds no cluster; check the prefix")
    fresh = target.with_name(f"{target.name}.fresh")
    fresh.mkdir()
    try:
        copy = SqliteStore(fresh)
        try:
            await copy.open()
            await copy.replace(state)
            await copy.copy_to(target)
        finally:
            await copy.close()
    finally:
        shutil.rmtree(fresh)
    return await _read_back(target)


def _refuse(data_dir: Path, target: Path) -> None:
    if not (data_dir / FILE_NAME).exists():
        raise StoreFailed(f"{data_dir} holds no {FILE_NAME}; give the controller's data directory")
    _refuse_existing(target)


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise StoreFailed(f"{target} exists; name another file")


async def _ask(data_dir: Path) -> None:
    """Ask the running controller to write its copy, and wait for it."""
    copy = data_dir / COPY_NAME
    before = _written_ns(copy)
    os.kill(_holder(data_dir), signal.SIGUSR1)
    deadline = time.monotonic() + _COPY_S
    while _written_ns(copy) == before:
        if time.monotonic() > deadline:
            raise StoreFailed(f"the controller wrote no {copy} within {_COPY_S:g} s; its log says why")
        await asyncio.sleep(_LOOK_EVERY_S)


def _holder(data_dir: Path) -> int:
    """The process that has the store open, according to the endpoint file and confirmed by the kernel."""
    try:
        pid = int(json.loads((data_dir / ENDPOINT_NAME).read_text(encoding="utf-8"))["pid"])
        opened = {os.path.realpath(file.path) for file in psutil.Process(pid).open_files()}
    except (OSError, ValueError, KeyError, psutil.Error) as error:
        raise StoreFailed(f"the store is in use, but not by a controller that serves here: {error}") from error
    if os.path.realpath(data_dir / FILE_NAME) not in opened:
        raise StoreFailed(f"the store is in use, but not by process {pid} that {ENDPOINT_NAME} names; try again")
    return pid


def _keep(copy: Path, target: Path) -> None:
    fresh = target.with_name(f"{target.name}.new")
    try:
        shutil.copyfile(copy, fresh)
        sync(fresh)
        fresh.replace(target)
        sync(target.parent)
    except OSError as error:
        raise StoreFailed(f"{target} cannot be written: {error}") from error


async def _read_back(target: Path) -> ClusterState:
    """The state that a controller would read from the copy; read from a second copy, so that the first is unchanged."""
    probe = target.with_name(f"{target.name}.check")
    probe.mkdir()
    try:
        shutil.copyfile(target, probe / FILE_NAME)
        store = SqliteStore(probe)
        try:
            state = await store.open()
        finally:
            await store.close()
    finally:
        shutil.rmtree(probe)
    if state is None:
        raise StoreFailed(f"{target} holds no cluster: the controller has not served yet")
    return state


def _written_ns(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def main(arguments: Sequence[str]) -> ExitCode:
    """Run ``backup --data-dir DIR --to FILE``, or with ``--etcd-endpoints``; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller backup",
        description="Copy the controllers' store, beside running controllers or while they are stopped.",
    )
    parser.add_argument("--data-dir", type=Path, help="the controller's directory, if its store is SQLite")
    parser.add_argument("--etcd-endpoints", default="", help="members of etcd, host:port with commas, if used")
    parser.add_argument("--etcd-prefix", default=DEFAULT_PREFIX, help="prefix of the cluster's keys in etcd")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="the copy; must not exist")
    add_files(parser)
    given = parser.parse_args(arguments)
    if bool(given.data_dir) == bool(given.etcd_endpoints):
        parser.error("give either --data-dir or --etcd-endpoints, which say where the store is")
    try:
        state = asyncio.run(_back_up(given))
    except ValueError as error:
        sys.stderr.write(f"strandline: {error}\n")
        return ExitCode.USAGE
    except (StoreFailed, OSError) as error:
        sys.stderr.write(f"strandline: no backup was made: {error}\n")
        return ExitCode.FAILED
    header = state.header
    sys.stdout.write(f"copied cluster {header.cluster_id} at metadata offset {header.metadata_offset} to {given.to}\n")
    return ExitCode.CLEAN


async def _back_up(given: argparse.Namespace) -> ClusterState:
    if given.data_dir:
        return await back_up(given.data_dir, given.to)
    access = access_of(given, read_members(given.etcd_endpoints), given.etcd_prefix)
    return await back_up_etcd(access, given.to)


# ---- restore
# `strandline controller restore`: replaces the controllers' store by a backup (C45).
#
# Invariant: unless nothing happened since the backup, a restored store is older than what nodes have seen. Nothing here
# hides that: the controller or a node notices it and names `recover` as the remedy (C35, C40).


def restore(arguments: Sequence[str]) -> ExitCode:
    """Run ``restore --from FILE --to STORE [--replace]``; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller restore",
        description="Put a backup in place of the controllers' store, while every controller is stopped.",
    )
    parser.add_argument("--from", dest="file", required=True, metavar="FILE", help="what `controller backup` wrote")
    parser.add_argument(
        "--to", dest="target", required=True, metavar="STORE", help="sqlite:DIR, or etcd:HOST:PORT,HOST:PORT/PREFIX"
    )
    parser.add_argument("--replace", action="store_true", help="discard what the store has of this cluster now")
    add_files(parser)
    given = parser.parse_args(arguments)
    code = move(f"backup:{given.file}", given.target, given, replaces=given.replace)
    if code is ExitCode.CLEAN:
        sys.stdout.write(
            "start a controller; if it or a node has seen more than the backup, it refuses to serve, and `strandline "
            "controller recover` with the nodes' directories brings back what they know\n"
        )
    return code
