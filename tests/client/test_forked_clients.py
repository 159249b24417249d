"""Programs that use the client and fork, like gunicorn, multiprocessing and subprocess."""

from __future__ import annotations

import asyncio
import os
import sys

from tests.client.fake_cluster import TOPIC, fake_cluster

_PROGRAM = """
import asyncio, gc, os, sys, threading, time
from strandline.client import ForkedAfterUse, Producer

async def produce():
    async with Producer(sys.argv[1]) as producer:
        await producer.send_and_wait(sys.argv[2], b"x")
        return "written"

def ask_in_child(work):
    pid = os.fork()
    if not pid:
        try:
            os._exit({"written": 10}.get(asyncio.run(work()), 1))
        except ForkedAfterUse as error:
            os._exit(20 if "after the fork" in str(error) else 2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

async def inherited(producer):
    await producer.flush()

async def serve():
    async with Producer(sys.argv[1]) as producer:
        print("open", ask_in_child(lambda: inherited(producer)), flush=True)
        while True:
            await producer.send_and_wait(sys.argv[2], b"x")
            busy.set()

async def collected():
    gc.collect()
    return "written"

gc.disable()
print("before", ask_in_child(produce), flush=True)
asyncio.run(produce())
began_s = time.monotonic()
print("after", ask_in_child(produce), time.monotonic() - began_s < 5, flush=True)
print("collected", ask_in_child(collected), flush=True)
gc.enable()
busy = threading.Event()
threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
assert busy.wait(30)
codes = set()
for _ in range(200):
    pid = os.fork()
    if not pid:
        os._exit(0)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("busy", sorted(codes), flush=True)
os._exit(0)
"""


async def test_a_program_that_uses_the_client_can_fork() -> None:
    """A child may connect if its parent had not, is rejected at once if it had, and none is killed by gRPC, or hangs
    when garbage is collected, that of a client which its parent had closed."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    async with fake_cluster() as cluster:
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROGRAM,
            cluster.bootstrap,
            TOPIC,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            said, errors = await program.communicate()

    assert said.decode().splitlines() == [
        "before 10",
        "after 20 True",
        "collected 10",
        "open 20",
        "busy [0]",
    ], errors.decode()[-2000:]
