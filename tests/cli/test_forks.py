"""A Strandline process starts other programs while it serves, in every way that Python offers."""

from __future__ import annotations

import os
import subprocess
import sys

_PROGRAM = """
import asyncio, contextlib, os, subprocess, sys, threading
from strandline.cli.__main__ import main
sys.argv = ["strandline", "--version"]
with contextlib.suppress(SystemExit):
    main()
import grpc


async def serve():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    ask = grpc.aio.insecure_channel(f"127.0.0.1:{port}").unary_unary("/nothing/here")
    while True:
        with contextlib.suppress(grpc.RpcError):
            await ask(b"", timeout=10)
        served.set()


served = threading.Event()
threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
assert served.wait(30)
# A function to be called in the child is what makes Python fork; PySpark gives one.
codes = [subprocess.run(["true"], preexec_fn=int, timeout=30).returncode for _ in range(200)]
print("codes", sorted(set(codes)), flush=True)
os._exit(0)
"""


def test_a_process_that_serves_can_fork() -> None:
    """Of two hundred programs that are started beside a busy gRPC server, each runs to its end."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}

    ran = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=100)

    assert ran.stdout.splitlines()[-1:] == ["codes [0]"], ran.stdout + ran.stderr[-2000:]
