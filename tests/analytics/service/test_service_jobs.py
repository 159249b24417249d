"""The jobs of the analytics server: the queue, and the watches of live statistics."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.core.errors import ErrorCode, Refused
from strandline_analytics.service.jobs import Cancelled, Job, JobQueue, JobState
from strandline_analytics.service.live import COLUMNS, Arrivals, LivePartition, LiveState, Watches, news_for
from strandline_analytics.sources.places import LocalPlace

_DEADLINE_S = 20


class Gate:
    """Work that blocks until it is released or interrupted."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.interrupted: list[str] = []

    def work(self, job: Job) -> str:
        """Wait, then continue unless the job was cancelled."""
        self.begun.set()
        assert self.let_go.wait(_DEADLINE_S), "nobody let the work go"
        job.check()
        return f"did {job.title}"

    def interrupt(self, job_id: str) -> None:
        """The effect of a cancelled Spark job."""
        self.interrupted.append(job_id)
        self.let_go.set()


@asynccontextmanager
async def _queue(capacity: int, interrupt: Callable[[str], None] = lambda _: None) -> AsyncIterator[JobQueue]:
    queue = JobQueue(capacity, interrupt=interrupt)
    owner = asyncio.create_task(queue.run_forever())
    try:
        async with asyncio.timeout(_DEADLINE_S):
            yield queue
    finally:
        queue.close()
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)


async def test_jobs_are_done_in_order_of_arrival() -> None:
    """Each job begins after the one before it has ended."""
    done: list[str] = []
    async with _queue(3) as queue:
        jobs = [queue.submit(title, lambda job: done.append(job.title)) for title in ("first", "second", "third")]
        await jobs[-1].outcome

    assert done == ["first", "second", "third"]
    assert [job.state for job in jobs] == [JobState.DONE] * 3
    ends = [(job.started_us or 0, job.ended_us or 0) for job in jobs]
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(ends))


async def test_a_full_queue_refuses_with_what_to_do() -> None:
    """The running job does not count; as many as the capacity wait behind it, and no more."""
    gate = Gate()
    async with _queue(2) as queue:
        running = queue.submit("running", gate.work)
        await asyncio.to_thread(gate.begun.wait, _DEADLINE_S)
        waiting = [queue.submit(f"waiting {n}", lambda job: None) for n in (1, 2)]

        with pytest.raises(Refused) as caught:
            queue.submit("too many", lambda job: None)

        assert [queue.ahead_of(job) for job in (running, *waiting)] == [0, 1, 2]
        gate.let_go.set()
        await waiting[-1].outcome
        assert queue.submit("again", lambda job: None).state is JobState.WAITING

    refusal = caught.value.refusal
    assert refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (refusal.field, bool(refusal.rule), bool(refusal.remedy)) == ("queue", True, True)


async def test_a_job_that_waits_is_cancelled_without_a_trace() -> None:
    """A cancelled waiting job never begins, its caller is notified at once, and the next one moves up."""
    gate, begun = Gate(), []
    async with _queue(2) as queue:
        queue.submit("running", gate.work)
        await asyncio.to_thread(gate.begun.wait, _DEADLINE_S)
        unwanted = queue.submit("unwanted", lambda job: begun.append(job.title))
        behind = queue.submit("behind", lambda job: begun.append(job.title))

        queue.cancel(unwanted)

        with pytest.raises(Cancelled):
            await unwanted.outcome
        assert queue.ahead_of(behind) == 1
        gate.let_go.set()
        await behind.outcome

    assert begun == ["behind"]
    assert unwanted.state is JobState.CANCELLED


async def test_work_under_way_is_interrupted() -> None:
    """A running job's caller is notified at once; its work is interrupted by its id, and then the next job begins."""
    gate = Gate()
    async with _queue(2, gate.interrupt) as queue:
        running = queue.submit("running", gate.work)
        await asyncio.to_thread(gate.begun.wait, _DEADLINE_S)
        behind = queue.submit("behind", lambda job: job.title)

        queue.cancel(running)

        with pytest.raises(Cancelled):
            await running.outcome
        assert await behind.outcome == "behind"

    assert gate.interrupted[0] == running.id
    assert running.state is JobState.CANCELLED


async def test_a_failure_is_the_jobs_own() -> None:
    """The caller gets the exception; the queue continues."""

    def fail(job: Job) -> None:
        raise ValueError("no such file")

    async with _queue(2) as queue:
        failed, next_one = queue.submit("fails", fail), queue.submit("works", lambda job: 7)
        with pytest.raises(ValueError, match="no such file"):
            await failed.outcome
        assert await next_one.outcome == 7

    assert failed.state is JobState.FAILED
    assert isinstance(failed.error, ValueError)


async def test_cancelling_what_has_ended_changes_nothing() -> None:
    """Cancelling a job that has ended does not change its result."""
    async with _queue(1) as queue:
        job = queue.submit("quick", lambda job: "result")
        await job.outcome
        queue.cancel(job)

    assert job.state is JobState.DONE
    assert await job.outcome == "result"


# The events of a watch: the newest state of each partition, in any order of files, and only what has changed.


_NUMBERS = itertools.count(1)


def _row(event_type: str, **said: Any) -> dict[str, Any]:
    number = next(_NUMBERS)
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"event_type": event_type, "cluster_id": "c", "topic": "tides", "topic_id": "T", "partition": 0}
    row |= {"node_id": -1, "incarnation": 1, "seq": number, "ts_wall_us": number * 1_000_000, "meta_offset": number}
    return row | said


def _snapshot(**said: Any) -> dict[str, Any]:
    usual = {"partition_epoch": 1, "leader_epoch": 3, "new_leader": 1, "new_isr": [1, 2, 3], "replicas": [1, 2, 3]}
    return _row("STATE_SNAPSHOT", min_isr=2, **(usual | said))


def _look(replica: int, leo: int, **said: Any) -> dict[str, Any]:
    usual = {"node_id": 1, "leader_epoch": 3, "replica_id": replica, "leo": leo, "leader_leo": 9, "hw": 7}
    return _row("REPLICA_SAMPLE", **(usual | {"expected_state": "member"} | said))


def _state(*rows: dict[str, Any]) -> LivePartition:
    state = LiveState()
    state.take(rows)
    (partition,) = state.partitions()
    return partition


def test_decisions_and_looks_make_the_state() -> None:
    """Leader, ISR and minimum are the controller's; HW, LEO and the replicas' progress are the leader's."""
    one = _state(_snapshot(), _row("ISR_CHANGE", partition_epoch=2, leader_epoch=3, new_isr=[1, 2]), _look(3, 4))

    assert (one.leader, one.isr, one.out_of_sync, one.min_isr) == (1, (1, 2), (3,), 2)
    assert (one.hw, one.leo, one.looks[3].leo) == (7, 9, 4)
    assert one.is_troubled


def test_without_a_leader_a_partition_is_in_trouble() -> None:
    """-1 in an event means that there is no leader, and no replica has to be out of sync for that."""
    one = _state(_snapshot(), _row("LEADER_CHANGE", partition_epoch=2, new_leader=-1, new_leader_epoch=4))

    assert (one.leader, one.leader_epoch, one.out_of_sync) == (None, 4, ())
    assert one.is_troubled


def test_a_replica_that_a_move_adds_is_not_out_of_sync() -> None:
    """While a move runs only the others are missed; once it has completed, its target is."""
    both = {"adding_replicas": [4], "replicas": [1, 2, 4, 3]}
    started = _row("REASSIGNMENT", partition_epoch=2, phase="started", **both)
    completed = _row("REASSIGNMENT", partition_epoch=3, phase="completed", **both | {"replicas": [1, 2, 4]})

    assert _state(_snapshot(), started).out_of_sync == ()
    assert _state(_snapshot(), started, completed).out_of_sync == (4,)


def test_what_a_deposed_leader_saw_is_forgotten() -> None:
    """Samples of an older leader epoch are ignored once a newer one is known, whenever they arrive."""
    change = _row("LEADER_CHANGE", partition_epoch=2, new_leader=2, new_leader_epoch=4)

    one = _state(_snapshot(), _look(2, 9), change, _look(3, 5))

    assert (one.leader, one.leader_epoch, one.leo, one.looks) == (2, 4, None, {})


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_files_does_not_matter(seed: int) -> None:
    """The same rows in any division and order, even read twice, give the same state."""
    rows = [
        _snapshot(),
        _look(2, 4, hw=4),
        _row("ISR_CHANGE", partition_epoch=2, leader_epoch=3, new_isr=[1, 2]),
        _row("LEADER_CHANGE", partition_epoch=3, new_leader=2, new_leader_epoch=4),
        _look(3, 6, node_id=2, incarnation=2, leader_epoch=4, hw=6),
        _look(3, 8, node_id=2, incarnation=2, leader_epoch=4, hw=8),
    ]
    shuffled = [*rows, *rows]
    random.Random(seed).shuffle(shuffled)
    state = LiveState()
    for row in shuffled:
        state.take([row])

    (one,) = state.partitions()
    assert (one.leader, one.leader_epoch, one.isr) == (2, 4, (1, 2))
    assert one.hw == 8


def test_a_watcher_hears_of_changes_only() -> None:
    """First everything, then nothing until something differs; a newer time alone is not a difference."""
    reported: dict[Any, LivePartition] = {}
    first = _state(_snapshot(), _look(2, 4))
    same_later = _state(_snapshot(), _look(2, 4))
    other = _state(_snapshot(), _look(2, 5))

    assert news_for(reported, [first], lambda one: True) == [first]
    assert same_later.as_of_us > first.as_of_us
    assert news_for(reported, [same_later], lambda one: True) == []
    assert news_for(reported, [other], lambda one: True) == [other]


def test_whoever_heard_of_trouble_hears_of_its_end() -> None:
    """With a filter, a partition is sent when it begins to match, while it does, and once when it ends."""
    reported: dict[Any, LivePartition] = {}
    well, shrunk = _state(_snapshot()), _state(_snapshot(new_isr=[1]))
    moved_on = _state(_snapshot(), _look(2, 4))

    heard = [news_for(reported, [one], lambda one: one.is_troubled) for one in (well, shrunk, shrunk, well, moved_on)]

    assert heard == [[], [shrunk], [], [well], []]


def _write(root: Path, hour: int, name: str, rows: list[dict[str, Any]]) -> None:
    folder = root / "c" / "v1" / "transitions" / "dt=2026-11-21" / f"hr={hour:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_every_file_is_read_once_when_it_arrives(tmp_path: Path) -> None:
    """The first read covers the newest hours; later ones read what is new, and report a damaged file once."""
    damaged: list[str] = []
    for hour in (9, 10, 11):
        _write(tmp_path, hour, f"n-1-i1-{hour}-{hour}.jsonl", [_snapshot(partition_epoch=hour)])
    arrivals = Arrivals([LocalPlace(tmp_path)], hours=2, on_damage=damaged.append)

    first = [row["partition_epoch"] for rows in arrivals.look() for row in rows]
    nothing = list(arrivals.look())
    _write(tmp_path, 11, "n-1-i1-12-12.jsonl", [_snapshot(partition_epoch=12), _row("EXPORT_HEARTBEAT")])
    (tmp_path / "c/v1/transitions/dt=2026-11-21/hr=11/n-1-i1-13-13.parquet").write_bytes(b"PAR1 and no more")
    # Before the sound one: a file that cannot be used takes no other with it.
    for number, line in enumerate([[], None, _snapshot(seq=None), _snapshot(new_isr=3), {"event_type": "ISR_CHANGE"}]):
        _write(tmp_path, 11, f"n-1-i1-11-{number}.jsonl", [line])  # type: ignore[list-item]
    table = pa.Table.from_pylist([_snapshot(seq=None)])
    pq.write_table(table, tmp_path / "c/v1/transitions/dt=2026-11-21/hr=11/n-1-i1-11-9.parquet")
    later = [row["partition_epoch"] for rows in arrivals.look() for row in rows]

    assert (first, nothing, later) == ([10, 11], [], [12])
    assert len(damaged) == 7
    assert "n-1-i1-13-13.parquet" in "".join(damaged)
    assert list(arrivals.look()) == []


async def test_one_look_serves_all_watchers() -> None:
    """Two watchers within one interval cost one read of the input, and both get everything first."""
    looks = []

    def source(state: LiveState) -> None:
        looks.append(1)
        state.take([_snapshot()])

    watches = Watches(source, poll_s=3_600)
    async with asyncio.timeout(_DEADLINE_S):
        reported = [await anext(watches.changes(lambda one: True)) for _ in range(2)]

    assert [[one.leader for one in news] for news in reported] == [[1], [1]]
    assert len(looks) == 1
