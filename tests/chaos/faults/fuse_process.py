"""Mounts a faulty disk and executes commands until unmounted: `python -m faults.fuse_process MOUNT BACKING SOCKET`.

Invariant: one command a line as JSON, one answer a line; a command is done when it is answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socketserver
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mfusepy
from faults.disk_rules import Rule
from faults.fuse_operations import CACHED_S, FaultyDisk

_PRIORITY = -15


def obey(disk: FaultyDisk, order: dict[str, Any]) -> dict[str, Any]:
    match order.pop("do"):
        case "cut":
            return asdict(disk.cut_power(**order))
        case "restore":
            disk.restore_power()
        case "rule":
            disk.rules.append(Rule(**order))
        case "heal":
            disk.rules.clear()
            disk.quota_bytes = None
        case "quota":
            disk.quota_bytes = order["bytes"]
        case "report":
            pass
        case other:
            return {"error": f"unknown order {other}"}
    unsynced = {path: file.unsynced_bytes for path, file in list(disk.tree.files()) if file.unsynced_bytes}
    return {
        "counts": dict(disk.counts),
        "rules": [asdict(rule) for rule in disk.rules],
        "used_bytes": disk.tree.used_bytes(),
        "unsynced": unsynced,
    }


class Mount(mfusepy.FUSE):
    """Passes on the file handle of ftruncate: an open file may have lost its name."""

    def truncate_fuse_3(self, path: bytes | None, length: int, info: Any) -> int:
        handle = info.contents.fh if info else None
        self.operations.truncate(None if path is None else path.decode(), length, handle)
        return 0


def main(mount: Path, backing: Path, control: Path) -> None:
    """Mounts and serves until it is unmounted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > 0 else soft, hard))
    with contextlib.suppress(PermissionError):
        # A disk does not wait for a processor; on a busy machine every operation would take tens of milliseconds.
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    disk = FaultyDisk(backing)

    class Orders(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(json.dumps(obey(disk, json.loads(line))).encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(control), Orders) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Mount(
            disk,
            str(mount),
            foreground=True,
            fsname="strandline-faulty-disk",
            hard_remove=True,
            entry_timeout=CACHED_S,
            attr_timeout=CACHED_S,
            negative_timeout=0,
            default_permissions=True,
        )
        server.shutdown()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
