"""The models and counts behind figures of the bench: growth, metadata, stages, memory, failover."""

from __future__ import annotations

import asyncio
import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import used_memory
from growth.model import (
    BUSY_SHARE,
    Check,
    Costs,
    Deployment,
    Line,
    changes_per_s,
    dead_machine_s,
    machines_for,
    most_partitions,
    node_us_per_s,
    nodes_for,
    uses,
)
from growth.page import growth_block
from metadata_gate.measured import Followed, Gate, Killed, Size
from metadata_gate.page import gate_block
from metadata_gate.stalls import Lateness, Stall, read_stalls
from metadata_gate.subscribers import Reached
from stage_log import DESCRIPTION, steps_of
from tests.bench.failover_page import failover_table
from tests.bench.gaps import Acknowledgement, gap_ms
from used_memory import KEPT_FREE_BYTES, UsedMemory, free_bytes

from strandline.rpc.channels import MAX_MESSAGE_BYTES
from strandline.v1 import metadata_service_pb2 as pb

COSTS = Costs(
    leader_batch=Line(1_000, 10),
    follower_batch=Line(500, 5),
    idle_partitions=Line(10_000, 20),
    idle_clients=Line(10_000, 100),
    idle_nodes=Line(2_000, 300),
    watching_clients=Line(5_000, 150),
    changes=Line(2_000, 50),
    controller_elections=Line(0, 400),
    node_elections=Line(0, 500),
    partition_kib=Line(60_000, 30),
    client_kib=Line(60_000, 50),
    metadata_by_partitions=Line(100, 80),
    metadata_by_nodes=Line(0, 100),
)


LOAD = Deployment(name="load", bytes_per_s=100 * 64 * 1024, batch_kib=64, partitions=0, nodes=1, clients=0)


def test_a_line_through_exact_points_is_that_line() -> None:
    """Three points of one line give its value at nothing and its slope."""
    assert Line.through([(1, 5), (2, 7), (10, 23)]) == Line(3, 2)


def test_a_line_needs_two_quantities() -> None:
    """Points of one quantity are refused: no slope can be known."""
    with pytest.raises(ValueError, match="two quantities"):
        Line.through([(3, 1), (3, 2)])


def test_a_node_pays_for_leading_following_and_idling() -> None:
    """100 batches of 64 KiB on one node: 1,640 us to lead, twice 820 us to follow, and 10,000 us of idling."""
    assert node_us_per_s(COSTS, LOAD) == 100 * 1_640 + 100 * 2 * 820 + 10_000


@pytest.mark.parametrize("batches_per_s", [1, 400, 5_000, 123_456])
def test_the_fewest_nodes_that_suffice(batches_per_s: int) -> None:
    """With the nodes of the answer a node is not too busy; with one fewer it is, unless three are the least."""
    wanted = replace(LOAD, bytes_per_s=batches_per_s * 64 * 1024, partitions=300)
    nodes = nodes_for(COSTS, wanted)

    assert node_us_per_s(COSTS, replace(wanted, nodes=nodes)) <= BUSY_SHARE * 1e6
    assert nodes == 3 or node_us_per_s(COSTS, replace(wanted, nodes=nodes - 1)) > BUSY_SHARE * 1e6


def test_changes_fill_what_idling_leaves_of_the_controllers_core() -> None:
    """With 100 nodes and 200 clients idling takes 62,000 us of the planned 700,000, and one change 17,000 us."""
    wanted = replace(LOAD, nodes=100, clients=200)

    assert changes_per_s(COSTS, wanted) == pytest.approx((700_000 - 32_000 - 30_000) / (2_000 + 300 * 50))


def test_the_whole_state_fits_one_message_up_to_the_limit() -> None:
    """With the most partitions the state fits a message, with one more it does not."""
    most = most_partitions(COSTS, 10)
    sizes = [COSTS.metadata_by_partitions.at(n) + COSTS.metadata_by_nodes.slope * 10 for n in (most, most + 1)]

    assert sizes[0] <= MAX_MESSAGE_BYTES < sizes[1]


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        (replace(LOAD, nodes=3, bytes_per_s=1e9), "core of a data node"),
        (replace(LOAD, nodes=200, partitions=150_000), "one message with the whole state"),
        (replace(LOAD, nodes=3, clients=10_000), "core of the controller"),
        (replace(LOAD, nodes=3, partitions=20_000), "controller's time for one dead node"),
    ],
)
def test_what_breaks_first_is_first(wanted: Deployment, first: str) -> None:
    """The resource with the largest share of its limit is the first one."""
    shares = [use.share for use in uses(COSTS, wanted)]

    assert uses(COSTS, wanted)[0].resource == first
    assert shares == sorted(shares, reverse=True)


def test_the_page_says_what_breaks_and_by_how_much_the_model_was_wrong() -> None:
    """The block names each deployment's first limit and the error of each check."""
    text = growth_block(COSTS, [Check("a point", predicted=90, measured=100, unit="us")], "abc1234")

    assert "| a point | 90 us | 100 us | -10% |" in text
    assert "**100,000 partitions**: one message with the whole state would need" not in text
    assert "commit abc1234" in text


def test_a_state_above_the_limit_is_on_the_page() -> None:
    """Where the state no longer fits a message, the block says how many bytes it would need."""
    text = growth_block(replace(COSTS, metadata_by_partitions=Line(0, 200)), [], "abc1234")

    assert "- **100,000 partitions**: one message with the whole state would need" in text


def test_workers_share_machines_and_never_less_than_a_machine_for_each_replica() -> None:
    """29 nodes' worth of load are 29 machines, 15 with two workers, 3 with fifty: as many as there are replicas."""
    wanted = replace(LOAD, bytes_per_s=29 * 64 * 1024 * 690_000 / 3_280)

    assert nodes_for(COSTS, wanted) == 29
    assert [machines_for(COSTS, wanted, workers) for workers in (1, 2, 50)] == [29, 15, 3]


def test_a_dead_machine_costs_what_its_workers_cost_together() -> None:
    """Three machines of one node or of ten: what dies leads a third of the partitions, and ten changes are sent."""
    wanted = replace(LOAD, bytes_per_s=0, partitions=3_000, clients=97)

    assert dead_machine_s(COSTS, wanted, 1) == (400 * 1_000 + 2_000 + 50 * 100) / 1e6
    assert dead_machine_s(COSTS, wanted, 10) == (400 * 1_000 + 10 * (2_000 + 50 * 127)) / 1e6


def test_the_page_says_what_workers_change() -> None:
    """Each deployment has its number of machines with one node and with several workers."""
    text = growth_block(COSTS, [], "abc1234")

    assert "--workers 7" in text
    assert len([line for line in text.splitlines() if " nodes) |" in line]) == 4


# The gate of metadata: what its subscribers count, what held-up loops write down, which figure misses its limit.


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


# What is counted of Spark's event log.


MIB = 1 << 20


def task(stage: int, *, read: int = 0, fetched: int = 0, written: int = 0) -> dict[str, Any]:
    """The end of a task that read of a table, fetched of other stages, and wrote for others, MiB."""
    metrics = {
        "Executor CPU Time": 500_000_000,
        "Executor Run Time": 900,
        "Disk Bytes Spilled": 0,
        "Input Metrics": {"Bytes Read": read * MIB},
        "Shuffle Read Metrics": {"Remote Bytes Read": 0, "Local Bytes Read": fetched * MIB},
        "Shuffle Write Metrics": {"Shuffle Bytes Written": written * MIB},
    }
    return {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Metrics": metrics}


def test_bytes_of_a_step_are_those_of_its_stages(tmp_path: Path) -> None:
    """Sums are over all stages of a step; the largest task is that of the stage in which one read most."""
    begun = [
        {"Event": "SparkListenerStageSubmitted", "Stage Info": {"Stage ID": stage}, "Properties": {DESCRIPTION: "s01"}}
        for stage in (1, 2)
    ]
    tasks = [task(1, read=2, written=1) for _ in range(4)] + [task(2, fetched=mib) for mib in (0, 1, 1, 9)]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, (*begun, *tasks))))

    step = steps_of(tmp_path)["s01"]

    assert (step["stages"], step["tasks"], step["cpu_s"]) == (2, 8, 4.0)
    assert (step["read_mib"], step["shuffled_mib"], step["spilled_mib"]) == (8, 4, 0)
    assert step["largest"] == [9, 1]


# Memory that a measurement finds used: how much is filled, and that it ends.


def _meminfo(tmp_path: Path, free_kib: int) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: 99999999 kB\nMemFree: {free_kib} kB\nMemAvailable: 1 kB\n")
    return path


def test_what_is_free_beyond_the_kept_part_is_filled(tmp_path: Path) -> None:
    """As many bytes are read as are free beyond `KEPT_FREE_BYTES`, rounded up to a chunk."""
    beyond = 9 << 20
    memory = UsedMemory(tmp_path, _meminfo(tmp_path, (KEPT_FREE_BYTES + beyond) >> 10))

    assert memory.fill() == 12 << 20


def test_a_page_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call continues behind the last one; a page that is still cached would take no memory."""
    places: list[int] = []

    def read(_: int, buffers: list[bytearray], at: int) -> int:
        places.append(at)
        return len(buffers[0])

    monkeypatch.setattr(used_memory.os, "preadv", read)
    memory = UsedMemory(tmp_path, _meminfo(tmp_path, (KEPT_FREE_BYTES >> 10) + 1))
    for _ in range(3):
        memory.fill()

    assert places == [0, 4 << 20, 8 << 20]


def test_used_memory_is_left_alone(tmp_path: Path) -> None:
    """Nothing is read, and no file is made, where little is free already."""
    memory = UsedMemory(tmp_path, _meminfo(tmp_path, KEPT_FREE_BYTES >> 10))

    assert memory.fill() == 0
    assert not (tmp_path / "hole").exists()


def test_a_machine_that_does_not_say_is_left_alone(tmp_path: Path) -> None:
    """Without /proc/meminfo nothing counts as free."""
    assert free_bytes(tmp_path / "absent") == 0
    assert UsedMemory(tmp_path, tmp_path / "absent").fill() == 0


def test_filling_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is free, one call takes no longer than `LIMIT_S`."""
    monkeypatch.setattr(used_memory, "LIMIT_S", 0.0)

    assert UsedMemory(tmp_path, _meminfo(tmp_path, 1 << 40)).fill() == 0


# The definition of a failover's gap: the time without acknowledgements that a producer sees, however short it is.


KILLED_S = 100.0
STEADY = [Acknowledgement(sent_s=99.98 + n / 1_000, acked_s=99.981 + n / 1_000) for n in range(18)]
"""One record after another; the last answer before the kill came at 99.998 s."""


def test_a_short_gap_is_the_gap() -> None:
    """Service that resumes 5 ms after the kill counts as 5 ms, not as an ordinary gap of later records."""
    resumed = [Acknowledgement(sent_s=100.002 + n / 500, acked_s=100.005 + n / 500) for n in range(50)]

    assert round(gap_ms([*STEADY, *resumed], KILLED_S), 3) == 7.0


def test_an_answer_that_was_on_its_way_ends_no_gap() -> None:
    """An answer of the dead leader that is read after the kill is not an answer of the next leader."""
    on_its_way = Acknowledgement(sent_s=99.999, acked_s=100.001)
    resumed = Acknowledgement(sent_s=100.001, acked_s=100.050)

    assert round(gap_ms([*STEADY, on_its_way, resumed], KILLED_S), 3) == 52.0


def test_the_table_says_what_its_figures_are() -> None:
    """Figures of this measure are explained, and those of the earlier one are labelled as such."""
    row = {"session_timeout_ms": 9_000, "heartbeat_interval_ms": 2_000, "gaps_ms": [7.0, 9.0]}
    idle = {**row, "measure": "sent-after-kill"}
    loaded = {**idle, "fault": "vanish", "load": {"per_s": 1_950}, "machine_percent": 130.0}
    now, without_load, before = (failover_table([one]) for one in (loaded, idle, row))

    assert "first acknowledgement of a record that was sent after it" in now
    assert "| vanished address | 9000 ms | 2000 ms | 2 | 8 | 7-9 | 1950 | 130.0 |" in now
    assert "without other load" not in now
    assert "without other load" in without_load
    assert "figures are of an earlier measure" in before
    assert "earlier" not in now + without_load
