"""What `strandline perf` counts, on clients that do nothing but count."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from strandline import client
from strandline.cli.app import app
from strandline.cli.durations import read_duration
from strandline.cli.failures import CommandFailed
from strandline.cli.output import Format
from strandline.cli.perf import measure
from strandline.cli.perf.load import STAMP_BYTES, Load, noise_values, uncounted, warm_up_of
from strandline.cli.perf.member import MemberFigures, MemberReading
from strandline.core.types import Offset
from strandline.records.compression import Compression, compress


class CountingProducer:
    """Acknowledges at every flush what it was sent, as one batch; gives up that of the record ``lost``; hands values to
    ``log``."""

    def __init__(self, load: Load, lost: int | None = None) -> None:
        self.load = load
        self.lost = lost
        self.log: list[bytes] = []
        self.waiting: list[int] = []

    async def send(self, topic: str, value: bytes, *, tag: int) -> None:
        """Takes a record; every tenth ends what was taken."""
        self.log.append(value)
        self.waiting.append(tag)
        if len(self.log) % 10 == 0:
            await self.flush()

    async def flush(self) -> None:
        """Ends what was taken."""
        tags, self.waiting = self.waiting, []
        refusal = client.Refusal(
            client.ErrorCode.NOT_ENOUGH_REPLICAS, "two of three are away", client.Outcome.NOT_APPENDED
        )
        given_up = refusal if self.lost in tags else None
        if tags:
            self.load.batch_ended(client.BatchOutcome("t", 0, Offset(0), len(tags), 1, 1.0, 1, given_up, tags))


class ListConsumer:
    """Gives the values of a list, ``step`` at a time, and is finished at its end if it is to end."""

    def __init__(self, log: list[bytes], step: int, *, ends: bool) -> None:
        self.log, self.step, self.ends, self.at = log, step, ends, 0

    @property
    def is_finished(self) -> bool:
        """Whether everything was given."""
        return self.ends and self.at == len(self.log)

    async def fetch_batches(self) -> list[SimpleNamespace]:
        """The next records; none while there are none."""
        await asyncio.sleep(0)
        values = self.log[self.at : self.at + self.step]
        records = [client.Record(Offset(self.at + index), 0, b"k", value) for index, value in enumerate(values)]
        self.at += len(values)
        return [SimpleNamespace(records=records)]


def consumer(log: list[bytes], step: int, *, ends: bool = True) -> Any:
    """A consumer of a list."""
    return ListConsumer(log, step, ends=ends)


async def test_producing_counts_what_follows_the_warm_up() -> None:
    """Every record is sent; a latency is kept of those after the warm-up alone, and their bytes are counted."""
    load = Load(topic="t", size_bytes=100)
    producer: Any = CountingProducer(load)
    counted: list[int] = []
    measured = await measure.measure_producing(load, producer, 25, 5, counted.append)

    assert len(producer.log) == 30
    assert (measured.records, len(measured.latencies_s), measured.size_bytes) == (25, 25, 2500)
    assert counted == [5, 15, 25]
    assert min(measured.latencies_s) >= 0
    assert measured.elapsed_s >= max(measured.latencies_s)


class TransactionalProducer(CountingProducer):
    """Notes how many records each transaction had; aborts the transaction ``aborted``."""

    def __init__(self, load: Load, aborted: int | None = None) -> None:
        super().__init__(load)
        self.aborted = aborted
        self.ends: list[int] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Ends what was taken at the end of the block."""
        before = len(self.log)
        yield
        await self.flush()
        if len(self.ends) == self.aborted:
            raise client.TransactionAborted(
                "t", client.Refusal(client.ErrorCode.INVALID_TXN_STATE, "its time was over")
            )
        self.ends.append(len(self.log) - before)


async def test_a_record_in_a_transaction_counts_when_that_is_committed() -> None:
    """Each transaction takes its length, the last one ends with the records; a latency spans the commit."""
    load, each = Load(topic="t", size_bytes=100, rate=1_000.0), read_duration("10ms")
    producer: Any = TransactionalProducer(load)
    measured = await measure.measure_producing(load, producer, 60, 5, lambda count: None, each)

    assert sum(producer.ends) == len(producer.log) == 65
    assert len(producer.ends) >= 3
    assert (measured.of, measured.records, len(measured.latencies_s)) == ("the commit of its transaction", 60, 60)


async def test_a_transaction_that_is_aborted_ends_the_run() -> None:
    """No figures are given."""
    load = Load(topic="t", size_bytes=10, rate=1_000.0)
    producer: Any = TransactionalProducer(load, aborted=2)
    with pytest.raises(CommandFailed, match=r"a transaction was not committed: .*its time was over"):
        await measure.measure_producing(load, producer, 60, 5, lambda count: None, read_duration("5ms"))


def test_transactions_need_all_replicas() -> None:
    """Said before anybody is asked."""
    words = ["perf", "produce", "t", "--transactional", "100ms", "--acks", "1", "--bootstrap", "127.0.0.1:1"]
    result = CliRunner().invoke(app, words)

    assert result.exit_code == 2
    assert "--acks all" in result.output


async def test_a_record_that_is_given_up_ends_the_run() -> None:
    """No figures are given; the message names the first record of its batch and why."""
    load = Load(topic="t", size_bytes=10)
    producer: Any = CountingProducer(load, lost=12)
    with pytest.raises(CommandFailed, match=r"record 10 was given up: .*two of three are away"):
        await measure.measure_producing(load, producer, 25, 5, lambda count: None)


@pytest.mark.parametrize("step", [1, 7, 30, 100])
async def test_consuming_counts_what_follows_the_warm_up(step: int) -> None:
    """However records arrive, exactly those after the warm-up are counted, with keys and values."""
    measured = await measure.measure_consuming(consumer([b"x" * 9] * 100, step), "t", 30, 10, lambda count: None)

    assert (measured.records, measured.size_bytes) == (30, 300)
    assert len(measured.latencies_s) == -(-min(40, 100) // step) - 10 // step
    assert measured.elapsed_s >= max(measured.latencies_s)


HOUR_S = 3_600


@pytest.mark.parametrize("warm_up", [0, 1])
async def test_without_a_warm_up_time_begins_with_the_assignment(warm_up: int) -> None:
    """What was fetched ahead between it and the first question is not free; behind a warm-up it does not matter."""
    log, assigned_s = [b""] * 20, time.monotonic() - HOUR_S
    measured = await measure.measure_consuming(
        consumer(log, 1), "t", 10, warm_up, lambda count: None, assigned_s=assigned_s
    )

    assert (measured.elapsed_s >= HOUR_S) == (warm_up == 0)


async def test_a_topic_that_is_too_short_is_not_measured() -> None:
    """The message says how many records there are, and how to get more."""
    with pytest.raises(CommandFailed, match=r"t has 20 records, .*strandline perf produce t"):
        await measure.measure_consuming(consumer([b""] * 20, 7), "t", 30, 10, lambda count: None)


class ListMember(ListConsumer):
    """A consumer of a group that is given one partition, and knows its HW."""

    def __init__(self, log: list[bytes], step: int, ends: int | None) -> None:
        super().__init__(log, step, ends=False)
        self.high = ends
        self.listener = client.RebalanceListener()

    async def subscribe(self, topic: str, *, listener: client.RebalanceListener) -> None:
        """Nothing is given before the member asks."""
        self.listener = listener

    def assignment(self) -> frozenset[client.TopicPartition]:
        """The one partition."""
        return frozenset({client.TopicPartition("t", 0)})

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """None before the first answer."""
        return self.high

    def position(self, topic: str, partition: int) -> int:
        """Behind what was given."""
        return self.at

    async def fetch_batches(self, timeout_ms: int = 0) -> list[SimpleNamespace]:
        """The first question brings the partition, every later one records."""
        if not self.listener.has_begun.is_set():  # type: ignore[attr-defined]  # the listener of a reading
            await self.listener.on_assigned(list(self.assignment()))
            return []
        fetched = await super().fetch_batches()
        return fetched if fetched[0].records else []


async def joined(member: Any) -> MemberReading:
    """The reading of a member of group g."""
    reading = MemberReading(member, "g")
    await reading.join("t")
    return reading


async def test_a_member_reads_what_its_group_gives() -> None:
    """Records are counted as without a group; the figures say what it owned and what was taken and given since."""
    member: Any = ListMember([b"x" * 9] * 100, 7, 100)
    reading = await joined(member)
    measured = await measure.measure_consuming(reading, "t", 30, 10, lambda count: None, "g")
    await member.listener.on_revoked([])
    await member.listener.on_assigned([])
    measured.member = reading.figures()
    document = measure.document_of(measured)

    assert (measured.records, measured.size_bytes) == (30, 300)
    assert document["member"].pop("joined_ms") >= 0
    assert document["member"] == {"group": "g", "partitions": 1, "assignment_changes": 2}
    assert "member" not in measure.document_of(measure.Measured(of="x"))


async def test_a_member_that_has_read_everything_is_not_measured() -> None:
    """The high watermark is its end, once it is known; the message names the group, and what to do."""
    member: Any = ListMember([b""] * 20, 7, 20)
    reading = await joined(member)
    with pytest.raises(CommandFailed, match=r"group g had 20 records of t for this member .* name a group that has"):
        await measure.measure_consuming(reading, "t", 30, 10, lambda count: None, "g")


async def test_a_member_waits_while_the_end_is_not_known() -> None:
    """Silence alone is no end: a leader may be away, or the partitions on their way from another member."""
    member: Any = ListMember([], 7, None)
    reading = await joined(member)
    waiting = asyncio.create_task(reading.fetch_batches())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    member.high = 0

    assert await waiting == []
    assert reading.is_finished


def test_a_membership_is_shown_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    """The third line names the group and what the member owned."""
    measured = measure.Measured(of="a fetch", records=1, elapsed_s=1.0, member=MemberFigures("g", 3, 1, 120.0))
    measure.show_run(measure.document_of(measured), Format.TABLE)

    assert capsys.readouterr().out.splitlines()[2:] == [
        "member of group g: 3 partitions at the end, joined in 120 ms, assignment changed 1 times since"
    ]


async def test_both_ends_when_everything_was_read() -> None:
    """Records of others are not counted; each of this run is, once."""
    load = Load(topic="t", size_bytes=64, is_stamped=True)
    producer: Any = CountingProducer(load)
    others = [b"", b"x" * 50]
    producer.log += others
    measured = await measure.measure_both(
        load, producer, consumer(producer.log, 3, ends=False), 20, 5, lambda count: None
    )

    assert len(producer.log) == 27
    assert (measured.records, len(measured.latencies_s), measured.size_bytes) == (20, 20, 1280)
    assert measured.elapsed_s >= max(measured.latencies_s) * 0.999


async def test_a_record_that_is_read_twice_ends_the_run() -> None:
    """A duplicate is a failure, not a figure."""
    load = Load(topic="t", size_bytes=64, is_stamped=True)
    load.due_s = array("d", [0.0] * 20)
    producer: Any = CountingProducer(load)
    doubled = [load.stamped(number) for number in (0, 1, 0)]
    with pytest.raises(CommandFailed, match="record 0 was read twice, now at offset 2"):
        await measure.measure_both(load, producer, consumer(doubled, 3, ends=False), 20, 0, lambda count: None)


async def test_a_record_that_is_late_counts_from_when_it_was_due() -> None:
    """At 1,000 records per second each is due a millisecond after the one before, though a stall holds all of them."""
    load = Load(topic="t", size_bytes=10, rate=1_000.0)
    producer: Any = StallingProducer(load)
    await load.send(producer, 6, uncounted)

    gaps = [later - earlier for earlier, later in pairwise(load.due_s)]
    assert gaps == pytest.approx([0.001] * 5)


class StallingProducer(CountingProducer):
    """Has its first record wait until all others are due."""

    async def send(self, topic: str, value: bytes, *, tag: int) -> None:
        """Takes a record."""
        while tag == 0 and time.monotonic() < self.load.due_s[0] + 0.01:
            pass
        await super().send(topic, value, tag=tag)


async def test_no_record_counts_from_before_it_was_due() -> None:
    """One that is waited for is sent when it is due or later, whatever the loop's timer makes of it."""
    load = Load(topic="t", size_bytes=10, rate=1_000.0)
    producer: Any = CountingProducer(load)
    began_s = time.monotonic()
    await load.send(producer, 20, uncounted)

    assert all(due_s >= began_s + number / 1_000 for number, due_s in enumerate(load.due_s))
    assert load.due_s[-1] <= time.monotonic()


@given(st.integers(STAMP_BYTES, 300), st.integers(0, 10**7))
def test_stamped_values_have_their_size_and_tell_whose_they_are(size: int, number: int) -> None:
    """A value has the size that was asked for, and is recognized by its own run alone."""
    load, other = (Load(topic="t", size_bytes=size, is_stamped=True) for _ in range(2))
    load.due_s = other.due_s = range(10**7 + 1)  # type: ignore[assignment]  # only its length is asked for
    value = load.stamped(number)

    assert len(value) == size
    assert load.number_of(value) == number
    assert other.number_of(value) is None


@pytest.mark.parametrize("size", [1, 15, 1_024, 1 << 20])
async def test_values_have_the_size_that_was_asked_for(size: int) -> None:
    """Also one that has no room for a stamp, and one that is a batch by itself."""
    load = Load(topic="t", size_bytes=size)
    producer: Any = CountingProducer(load)
    await load.send(producer, 3, uncounted)

    assert [len(value) for value in producer.log] == [size] * 3


@pytest.mark.parametrize("size", [16, 100, 1_024, 100_000])
def test_what_a_batch_holds_does_not_compress(size: int) -> None:
    """A codec that is measured must not save what a user's records would not let it save. Values that overlapped did:
    lz4 left 9 % of them."""
    values = noise_values(size, are_compressed=True)
    batch = b"".join(values[: (256 << 10) // size])

    assert len(compress(Compression.ZSTD, memoryview(batch))) > 0.99 * len(batch)


async def test_each_latency_begins_when_its_record_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a batch end at one moment; those that were sent before waited longer."""
    clock = iter(range(10**6))
    monkeypatch.setattr("strandline.cli.perf.load.time.monotonic", lambda: float(next(clock)))
    load = Load(topic="t", size_bytes=10)
    producer: Any = CountingProducer(load)
    measured = await measure.measure_producing(load, producer, 10, 0, lambda count: None)

    assert list(measured.latencies_s) == [float(later) for later in range(10, 0, -1)]


@given(st.lists(st.floats(0, 1e4), min_size=1))
def test_percentiles_are_ordered_and_were_seen(seconds: list[float]) -> None:
    """Each percentile is at least the one before, and the latency of some record; the last is the highest."""
    found = measure.percentiles_ms(seconds)
    ordered = [found[name] for name in measure.PERCENTILES]

    assert ordered == sorted(ordered, key=float)  # type: ignore[arg-type]  # there is a value, so none is None
    assert set(ordered) <= {round(1e3 * value, 3) for value in seconds}
    assert found["max"] == round(1e3 * max(seconds), 3)


def test_percentiles_are_by_nearest_rank() -> None:
    """Of 1 to 1,000 ms the 99.9th percentile is 999 ms, of one more 1,000; of nothing there is none."""
    found = measure.percentiles_ms([number / 1e3 for number in range(1, 1001)])

    assert found == {"p50": 500.0, "p95": 950.0, "p99": 990.0, "p999": 999.0, "max": 1000.0}
    assert measure.percentiles_ms([number / 1e3 for number in range(1, 1002)])["p999"] == 1000.0
    assert set(measure.percentiles_ms([]).values()) == {None}


def test_rates_follow_from_counts() -> None:
    """Records and millions of bytes per second are what was counted by the time it took."""
    document = measure.document_of(measure.Measured(of="x", records=2_000, size_bytes=4_000_000, elapsed_s=0.5))

    assert (document["records_per_s"], document["mb_per_s"]) == (4_000.0, 8.0)


@pytest.mark.parametrize(("given", "records", "warm_up"), [(None, 50, 5), (None, 10**6, 10_000), (0, 50, 0), (7, 5, 7)])
def test_the_warm_up_is_a_tenth_unless_given(given: int | None, records: int, warm_up: int) -> None:
    """It is bounded, and can be left out."""
    assert warm_up_of(given, records) == warm_up


@pytest.mark.parametrize("words", [["consume"], ["perf", "consume"]])
def test_a_blank_group_is_rejected_before_anybody_is_asked(words: list[str]) -> None:
    """Exit code 2 with the rule, where a reader of a topic may be a member."""
    ran = CliRunner().invoke(app, [*words, "t", "--group", " ", "-b", "127.0.0.1:1"])

    assert (ran.exit_code, "must not be blank; give 1 to 249" in " ".join(ran.stderr.split())) == (2, True), ran.stderr
