"""The criteria of the fault scenarios can fail: each gets a real failure, and something that only looks like one."""

from __future__ import annotations

import asyncio
import json
import random
import tracemalloc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.cluster import Cluster
from harness.counters import counted
from harness.criteria import Footprint, v1_history, v3_processes, v4_available, v5_real
from harness.facilities import Facility, missing
from harness.history_file import HistoryWriter, operations
from harness.load import LOOSE, STRICT, Load, Sent
from harness.moves import left_behind
from harness.namespaces import Namespaces
from harness.run import Expected, Run
from harness.scenario import Fault, Form, Scenario, scenarios

from strandline.cli.local.processes import Exit
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import metadata_pb2
from strandline_sim.checks.history import RecordValue, SendOutcome, anomalies


def _run(tmp_path: Path, **declared: Any) -> Run:
    """An empty run, to which a test adds what is to be judged."""
    cluster = Cluster(tmp_path / "cluster", Namespaces())
    for service in cluster.services:
        service.output.parent.mkdir(parents=True, exist_ok=True)
        service.output.touch()
    probe: Any = SimpleNamespace()
    return Run(
        scenario=type("Nothing", (Scenario,), {"number": 99, "title": "Nothing", **declared})(),
        form=Form(),
        seed=1,
        plan=[],
        directory=tmp_path,
        cluster=cluster,
        probe=probe,
        load=Load(cluster=cluster, probe=probe, directory=tmp_path, seed=1),
    )


def _acked(invoked_s: float, completed_s: float, *, outcome: str = "ok", partition: int = 0) -> Sent:
    return Sent(RecordValue("p0", int(invoked_s * 10)), STRICT, partition, invoked_s, completed_s, outcome)


def test_history_with_a_lost_write_fails(tmp_path: Path) -> None:
    """V1: an acknowledged value that every reader skipped is named."""
    history = HistoryWriter(tmp_path / "history-cli0.jsonl")
    for seq in range(2):
        history.send(RecordValue("p0", seq), STRICT, 0)
        history.sent(RecordValue("p0", seq), SendOutcome.OK, seq)
    history.seek("c0", STRICT, 0, 0)
    history.read("c0", STRICT, 0, [(1, RecordValue("p0", 1))])
    history.close()
    run = _run(tmp_path)
    run.load._read_up_to[tmp_path / "history-cli0.jsonl"] = 0

    assert any("lost-write" in failure for failure in v1_history(run))


def test_client_that_died_fails(tmp_path: Path) -> None:
    """V1: a history is no proof when its writer ended early."""
    run = _run(tmp_path)
    run.load.deaths.append("the clients in cli0 ended with 1")

    assert v1_history(run) == ["V1 the clients in cli0 ended with 1"]


def test_acks_1_promises_nothing(tmp_path: Path) -> None:
    """An acknowledged record of the acks=1 topic may be lost, and another may take its offset."""
    path = tmp_path / "history.jsonl"
    history = HistoryWriter(path)
    for seq in range(2):
        history.send(RecordValue("a0", seq), LOOSE, 0)
        history.sent(RecordValue("a0", seq), SendOutcome.OK, 0)
    history.seek("c0", LOOSE, 0, 0)
    history.read("c0", LOOSE, 0, [(0, RecordValue("a0", 1))])
    history.close()

    assert anomalies(operations([path], [STRICT, LOOSE], frozenset({LOOSE}))) == []
    assert anomalies(operations([path], [STRICT, LOOSE], frozenset())) != []


def test_judging_needs_no_memory_for_what_is_read_again(tmp_path: Path) -> None:
    """A log that is read thirty times needs at most half more memory to be judged than one that is read once."""
    peaks = {times: _peak_of_judging(tmp_path / f"{times}.jsonl", times) for times in (1, 30)}

    assert peaks[30] < 1.5 * peaks[1], peaks


def _peak_of_judging(path: Path, times: int) -> int:
    records = [(seq, RecordValue("p0", seq)) for seq in range(2_000)]
    history = HistoryWriter(path)
    for offset, value in records:
        history.send(value, STRICT, 0)
        history.sent(value, SendOutcome.OK, offset)
    for _ in range(times):
        history.seek("c0", STRICT, 0, 0)
        for offset, value in records:
            history.read("c0", STRICT, 0, [(offset, value)])
    history.close()
    tracemalloc.start()
    try:
        assert anomalies(operations([path], [STRICT, LOOSE], frozenset())) == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_equal_offsets_of_two_topics_are_two_places(tmp_path: Path) -> None:
    """Partition 0 of one topic is not partition 0 of the other."""
    path = tmp_path / "history.jsonl"
    history = HistoryWriter(path)
    for client, topic in (("p0", STRICT), ("a0", LOOSE)):
        history.send(RecordValue(client, 0), topic, 0)
        history.sent(RecordValue(client, 0), SendOutcome.OK, 0)
        history.read("c0", topic, 0, [(0, RecordValue(client, 0))])
    history.close()

    assert anomalies(operations([path], [STRICT, LOOSE], frozenset())) == []


def test_unasked_end_fails_unless_it_is_declared(tmp_path: Path) -> None:
    """V3: a process that ended by itself is named; a fail-stop that the scenario provokes is not."""
    end = Exit(name="node-1", code=int(ExitCode.STORAGE_FAILED))
    run, forgiving = _run(tmp_path), _run(tmp_path, declared_ends=frozenset({ExitCode.STORAGE_FAILED}))
    run.cluster.ends.append(end)
    forgiving.cluster.ends.append(end)

    assert v3_processes(run, {}, {}, []) == ["V3 node-1 ended with exit code 10 (STORAGE_FAILED)"]
    assert v3_processes(forgiving, {}, {}, []) == []


@pytest.mark.parametrize(
    ("after", "is_fine"),
    [
        (Footprint(150_000, 20, 10), True),
        (Footprint(340_000, 20, 10), True),
        (Footprint(400_000, 20, 10), False),
        (Footprint(150_000, 80, 10), False),
        (Footprint(150_000, 20, 30), False),
    ],
)
def test_what_grew_and_stayed_fails(tmp_path: Path, after: Footprint, is_fine: bool) -> None:
    """V3: memory may double or grow by 256 MiB; files and threads must return to their initial number."""
    warm = {"node-1": Footprint(100_000, 20, 10)}

    assert (v3_processes(_run(tmp_path), warm, {"node-1": after}, []) == []) is is_fine


def test_alarm_in_the_output_fails(tmp_path: Path) -> None:
    """V3: a line that only a defect writes is quoted."""
    run = _run(tmp_path)
    run.cluster.controller.output.write_text("Traceback (most recent call last):\n")

    assert v3_processes(run, {}, {}, []) == ["V3 alarm: controller: Traceback (most recent call last):"]


@pytest.mark.parametrize(
    ("sends", "said"),
    [
        (
            [_acked(99.9, 100.1), _acked(100.5, 101.0, outcome="indefinite"), _acked(101.0, 106.5)],
            ["V4 a kill: partition 0 had no ack for 6.5 s, 5 s allowed"],
        ),
        ([_acked(100.5, 104.9)], []),
    ],
    ids=["late", "in time"],
)
def test_late_ack_fails(tmp_path: Path, sends: list[Sent], said: list[str]) -> None:
    """V4: only sends that began after the fault count, and the first of them must be acknowledged in time."""
    run = _run(tmp_path)
    run.expected.append(Expected(since_s=100.0, why="a kill", within_s=5.0, partitions=(0,), clients=("p0",)))
    run.load.sends += sends

    assert v4_available(run) == said


def test_fault_without_effect_is_void(tmp_path: Path) -> None:
    """V5: what a scenario demands must have been counted."""
    run = _run(tmp_path, demands=lambda scenario, form: {"elections": 2})
    run.counters = Counter(elections=1)

    assert v5_real(run) == ["V5 elections: 1, wanted at least 2"]


def test_only_events_count(tmp_path: Path) -> None:
    """Counters come from state events; a torn last line is left out, a first leader is not an election."""
    change = {"event": "LEADER_CHANGE", "old_leader": 1, "new_leader": 2, "old_leader_epoch": 0}
    first = change | {"old_leader": None, "old_leader_epoch": None}
    cut = {"event": "TRUNCATION", "from_leo": 9, "to_leo": 7, "committed_cut": 0}
    (tmp_path / "controller").mkdir()
    (tmp_path / "node").mkdir()
    lines = [json.dumps(first), json.dumps(change), '{"event":"LEAD']
    (tmp_path / "controller" / "events.jsonl").write_text("\n".join(lines))
    (tmp_path / "node" / "events.jsonl").write_text(json.dumps(cut) + "\n")
    found = counted([tmp_path / "controller"], [tmp_path / "node"])

    assert (found["elections"], found["truncations"], found["truncated_records"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"adding_replicas": [3]}, ["tides-0: adding [3]"]),
        ({"queued_target": [3, 4]}, ["tides-0: queued target [3, 4]"]),
        ({"throttle_bytes_per_s": 1}, ["tides-0: a throttle"]),
        ({"replicas": [1]}, ["tides-0 is reported by node 2", "node 2 has the folder tides-0"]),
        ({"replicas": [1, 2, 3]}, ["tides-0 is not reported by node 3"]),
    ],
)
def test_whatever_a_move_left_fails(change: dict[str, Any], said: list[str]) -> None:
    """Unended moves, throttles, and replicas that a node holds or reports and should not are named; strays are not."""
    partition = metadata_pb2.PartitionMetadata(**{"partition_index": 0, "replicas": [1, 2]} | change)
    image = metadata_pb2.ClusterMetadata(topics=[metadata_pb2.TopicMetadata(name=STRICT, partitions=[partition])])
    folders = {1: [f"{STRICT}-0"], 2: [f"{STRICT}-0", f"{STRICT}-1.id.moved.stray"]}

    assert left_behind(image, {(STRICT, 0, 1), (STRICT, 0, 2)}, folders) == said


def test_what_is_missing_is_said() -> None:
    """A missing facility is named with its sentence; an existing one reports nothing."""
    there = Facility(name="there", lacking=lambda: None)
    not_there = Facility(name="FUSE", lacking=lambda: "/dev/fuse cannot be opened")

    assert missing([there, not_there]) == ["FUSE: /dev/fuse cannot be opened"]


@pytest.mark.parametrize("number", sorted(scenarios()))
def test_a_plan_is_drawn_by_its_seed_alone(number: int) -> None:
    """The same seed draws the same plan, which can be written as JSON; every scenario demands some counter."""
    scenario = scenarios()[number]
    plans = [scenario.plan(random.Random("1"), form) for form in (Form(), Form(), Form(is_short=True))]

    assert plans[0] == plans[1]
    assert all(json.dumps([step.args for step in plan]) for plan in plans)
    assert plans[0]
    assert scenario.demands(Form())


async def test_faults_are_undone_in_reverse_order(tmp_path: Path) -> None:
    """The last resort undoes the latest fault first, and continues after one that fails."""
    undone = []

    class Remembered(Fault):
        def __init__(self, name: str) -> None:
            self.name = name

        async def apply(self, cluster: Cluster) -> None:
            await asyncio.sleep(0)

        async def undo(self, cluster: Cluster) -> None:
            undone.append(self.name)
            if self.name == "second":
                raise RuntimeError("cannot be undone")

    run = _run(tmp_path)
    for name in ("first", "second", "third"):
        await run.begin(Remembered(name))
    await run.undo_everything()

    assert undone == ["third", "second", "first"]
