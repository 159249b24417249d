"""The gate of metadata: what its subscribers count, what held-up loops write down, which figure misses its limit."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path

from metadata_gate.measured import Followed, Gate, Killed, Size
from metadata_gate.page import gate_block
from metadata_gate.stalls import Lateness, Stall, read_stalls
from metadata_gate.subscribers import Reached

from strandline.v1 import metadata_service_pb2 as pb

SHORT = Stall(1.0, 12.0, 11.0)
MET = Gate(
    size=Size(),
    led=3_334,
    alone=Killed(SHORT, SHORT, 1.0),
    watched=Killed(SHORT._replace(late_ms=49.4), SHORT._replace(late_ms=99.0), 20.0),
    followed=Followed(0.1, 0.9, 0, 2_000_000),
    snapshots_mib=100.0,
    load_before=0.5,
)


def message(offset: int) -> bytes:
    """One message of a subscription."""
    as_of = pb.AsOf(controller_epoch=2, reign_id="a" * 32, metadata_offset=offset, age_ms=3, node_id=1)
    return pb.SubscribeResponse(as_of=as_of, cluster_id="c").SerializeToString()


def test_a_subscriber_counts_bytes_and_the_first_time_of_each_position() -> None:
    """Signs of life count as bytes, and a position counts when it is reached first."""
    reached = Reached()
    for at_s, offset in ((1.0, 7), (2.0, 7), (3.0, 300)):
        as_of = reached.take(message(offset), at_s)

    assert reached.times == [(1.0, 7), (3.0, 300)]
    assert reached.bytes_in == 2 * len(message(7)) + len(message(300))
    assert pb.AsOf.FromString(as_of).metadata_offset == 300


def test_a_loop_that_was_held_up_writes_down_for_how_long(tmp_path: Path) -> None:
    """A step of 30 ms is a stall of a loop whose timer is due every 5 ms, and used a processor."""
    found = io.StringIO()

    async def hold_up() -> None:
        loop = asyncio.get_running_loop()
        Lateness(loop, found)
        began_s = time.thread_time()
        while time.thread_time() < began_s + 0.03:
            pass
        looked = asyncio.Event()
        loop.call_later(0.001, looked.set)
        await looked.wait()

    asyncio.run(hold_up())
    path = tmp_path / "1.txt"
    path.write_text(found.getvalue())
    longest = max(read_stalls(path), key=lambda stall: stall.late_ms)

    assert longest.late_ms >= 20
    assert longest.busy_ms >= 20


def test_each_figure_below_its_limit_is_met() -> None:
    """Four limits, four verdicts."""
    block = gate_block(MET, "abc1234", "Something else ran.")

    assert block.count("| met |") == 4
    assert "**missed**" not in block
    assert "Something else ran." in block


def test_a_subscriber_that_never_knew_misses_the_gate() -> None:
    """However soon all others knew."""
    block = gate_block(MET._replace(followed=Followed(0.1, 0.2, 3, 1)), "abc1234")

    assert "| 0.20 s, 3 never | **missed** |" in block


def test_a_longer_stall_misses_the_gate() -> None:
    """The controller's limit is half of a node's."""
    late = MET.watched._replace(controller=SHORT._replace(late_ms=60.0), node=SHORT._replace(late_ms=60.0))
    block = gate_block(MET._replace(watched=late), "abc1234")

    assert block.count("**missed**") == 1
