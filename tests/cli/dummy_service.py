"""A replacement for a controller or replica process: takes their flags, writes an endpoint, waits for SIGTERM.

`--misbehave die` ends at once; `--misbehave deaf` ignores SIGTERM; `--misbehave silent` never serves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path


def main(words: list[str]) -> None:
    """Serves as the flags specify."""
    flags = dict(zip(words[::2], words[1::2], strict=True))
    misbehave = flags.get("--misbehave")
    if misbehave == "die":
        print("the disk is full")
        raise SystemExit(74)
    # Blocked until it is waited for: a handler could run just before a pause that nothing would then end.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if misbehave != "silent":
        _serve(flags)
    while misbehave == "deaf":
        signal.pause()
    signal.sigwait({signal.SIGTERM})


def _serve(flags: dict[str, str]) -> None:
    sockets = [_listen(flags[name]) for name in ("--bind", "--internal-bind") if name in flags]
    addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets]
    directory = Path(flags["--data-dir"])
    directory.mkdir(parents=True, exist_ok=True)
    written = {
        "pid": os.getpid(),
        "client": addresses[0],
        "internal": addresses[1] if len(addresses) > 1 else None,
        "node_id": int(flags["--node-id"]) if "--node-id" in flags else None,
    }
    (directory / "endpoint.json.new").write_text(json.dumps(written))
    (directory / "endpoint.json.new").replace(directory / "endpoint.json")
    _KEPT.extend(sockets)


_KEPT: list[socket.socket] = []


def _listen(bind: str) -> socket.socket:
    host, _, port = bind.rpartition(":")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    listener.listen()
    return listener


if __name__ == "__main__":
    main(sys.argv[1:])
