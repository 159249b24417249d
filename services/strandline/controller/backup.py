"""How `strandline controller backup` gets a whole copy of the store, whether a controller runs or not.

A running controller holds its store for itself, so no other process can read it: it is asked by SIGUSR1 to write a
copy, and only after it was seen to have the very file open. Invariant: what is called a backup was read back.
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
from strandline.core.controller_state import ClusterState
from strandline.metadata.sqlite import FILE_NAME, SqliteStore, sync
from strandline.metadata.store import StoreFailed, StoreInUse
from strandline.runtime.exit_codes import ExitCode

_COPY_S = 30.0
_LOOK_EVERY_S = 0.05


async def back_up(data_dir: Path, target: Path) -> ClusterState:
    """Write a copy of the store in ``data_dir`` to ``target``; returns what the copy holds.

    Raises:
        StoreFailed: there is no store, ``target`` exists, or no copy could be had; the sentence says which.
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


def _refuse(data_dir: Path, target: Path) -> None:
    if not (data_dir / FILE_NAME).exists():
        raise StoreFailed(f"{data_dir} holds no {FILE_NAME}; give the controller's data directory")
    if target.exists():
        raise StoreFailed(f"{target} exists; name another file")


async def _ask(data_dir: Path) -> None:
    """Have the running controller write its copy, and wait for it."""
    copy = data_dir / COPY_NAME
    before = _written_ns(copy)
    os.kill(_holder(data_dir), signal.SIGUSR1)
    deadline = time.monotonic() + _COPY_S
    while _written_ns(copy) == before:
        if time.monotonic() > deadline:
            raise StoreFailed(f"the controller wrote no {copy} within {_COPY_S:g} s; its log says why")
        await asyncio.sleep(_LOOK_EVERY_S)


def _holder(data_dir: Path) -> int:
    """The process that has the store open, as its endpoint says and the kernel confirms."""
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
    """What a controller would find in the copy. Read from a second copy, so that the first stays as it is."""
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
    """``backup --data-dir DIR --to FILE``; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="strandline controller backup",
        description="Copy the controller's store, beside the running controller or while it is stopped.",
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="the controller's directory")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="the copy; must not exist")
    given = parser.parse_args(arguments)
    try:
        state = asyncio.run(back_up(given.data_dir, given.to))
    except (StoreFailed, OSError) as error:
        sys.stderr.write(f"strandline: no backup was made: {error}\n")
        return ExitCode.FAILED
    header = state.header
    sys.stdout.write(f"copied cluster {header.cluster_id} at metadata offset {header.metadata_offset} to {given.to}\n")
    return ExitCode.CLEAN
