"""Lines of brokers' logs against the decisions that they are about: by identity and time, never by a name alone."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from metadata_log_bytes import (
    HEAD,
    START_MS,
    TOPIC_ID,
    batch,
    broker,
    change,
    feature,
    framed,
    ids,
    node,
    partition,
    setting,
    topic,
    voters,
)

from strandline.core.types import NodeId
from strandline.export.destination import LocalDirectory
from strandline.export.reading import find_files, read_rows
from strandline_kafka.brokers.broker_clocks import BrokerClock
from strandline_kafka.brokers.broker_events import BrokerStory
from strandline_kafka.brokers.broker_logs import Logged, read_logs
from strandline_kafka.brokers.joining import join
from strandline_kafka.brokers.line_facts import CutDone
from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, layout_of
from strandline_kafka.metadata.importing import Import, Imported
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.skeleton import Registration, Skeleton, TopicLife

Row = dict[str, Any]
ONE, TWO = ids(1, 3), ids(1, 2, 3)
PRINTED_ID = "AAAAAAAAQACAAAAAAAAAAQ"
"""`TOPIC_ID` as Kafka prints it."""


class Said(NamedTuple):
    """A line of node 1: when, after the log's begin, and its message."""

    at_ms: int
    message: str


def shrinks(at_ms: int, *, name: str = "t", old: str = "1,2,3", new: str = "1,3") -> Said:
    """The leader proposes a removal of a member that was caught up 5 s ago."""
    caught_up = START_MS + at_ms - 5_000
    return Said(
        at_ms,
        f"[Partition {name}-0 broker=1] Shrinking ISR from {old} to {new}. Leader: (highWatermark: 7, endOffset: 9). "
        f"Out of sync replicas: (brokerId: 2, endOffset: 7, lastCaughtUpTimeMs: {caught_up}).",
    )


def updated(at_ms: int, epoch: int, isr: str = "1,3") -> Said:
    return Said(at_ms, f"[Partition t-0 broker=1] ISR updated to {isr}  and version updated to {epoch}")


def leads(at_ms: int, epoch: int = 0, topic_id: str = PRINTED_ID) -> Said:
    return Said(
        at_ms,
        f"[Broker id=1] Leader t-0 with topic id Some({topic_id}) starts at leader epoch 0 from offset 0 with "
        f"partition epoch {epoch}, high watermark 0, ISR [1,2,3], adding replicas [] and removing replicas [] . "
        "Previous leader None and previous leader epoch was -1.",
    )


def decided(offset: int, at_ms: int, isr: bytes) -> bytes:
    return batch(offset, change(t0=isr), at_ms=START_MS + at_ms)


def imported(tmp_path: Path, lines: list[Said], *batches: bytes) -> tuple[Imported, list[Row]]:
    """The metadata log with these batches, and what it and node 1's lines became."""
    log = tmp_path / "server.log"
    moments = (datetime.fromtimestamp((START_MS + one.at_ms) / 1000, UTC) for one in lines)
    log.write_text(
        "".join(
            f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] INFO {one.message} (kafka.cluster.Partition)\n"
            for at, one in zip(moments, lines, strict=True)
        )
    )
    root = node(tmp_path, 1, *batches)
    logs = [read_logs(1, log, layout_of(DEFAULT_PATTERN))]
    done = Import([open_copy(root)], "c", logs=logs).write(LocalDirectory(tmp_path / "out"))
    place = LocalDirectory(tmp_path / "out")
    rows = [row for file in find_files(place, "c") for row in read_rows(file.path, place.get(f"c/v1/{file.path}"))]
    return done, sorted(rows, key=lambda row: (row["node_id"], row["seq"]))


def spans(done: Imported) -> list[tuple[int, int]]:
    assert done.learnt is not None
    return [(span.low_ms, span.high_ms) for span in done.learnt.clocks[1].spans]


def left_out(done: Imported) -> dict[str, tuple[int, str]]:
    return {form: (one.lines, one.first) for form, one in done.left_out[1].items()}


def proposals(rows: list[Row]) -> list[tuple[int, int]]:
    """When each proposal was made, and at which partition epoch."""
    asked = [row for row in rows if row["event_type"] == "ALTER_PARTITION" and row["phase"] == "proposed"]
    assert all(row["partition_epoch"] == row["expected_partition_epoch"] for row in asked)
    return [(row["ts_wall_us"] // 1_000 - START_MS, row["expected_partition_epoch"]) for row in asked]


def test_a_proposal_without_a_take_over_is_at_the_epoch_before_its_removal(tmp_path: Path) -> None:
    """Two pauses whose removals and returns the broker learnt from the metadata log first: epochs 0 and 2, not 0."""
    lines = [leads(450), shrinks(10_000), shrinks(26_000)]
    log = [decided(5, 10_010, ONE), decided(6, 15_000, TWO), decided(7, 26_010, ONE), decided(8, 31_000, TWO)]
    _, rows = imported(tmp_path, lines, *HEAD, *log)
    assert proposals(rows) == [(10_000, 0), (26_000, 2)]
    echoes = [row for row in rows if row["event_type"] == "ISR_CHANGE" and row["node_id"] == 1]
    assert [(row["partition_epoch"], row["hw"]) for row in echoes] == [(1, 7), (3, 7)]


def test_a_proposal_that_was_never_granted_is_at_the_epoch_of_its_time(tmp_path: Path) -> None:
    """The broker wrote no line of epochs 1 and 2, and the controller never answered the proposal behind them."""
    log = [decided(5, 10_010, ONE), decided(6, 15_000, TWO), decided(7, 20_000, ids(2, 3, 1))]
    _, rows = imported(tmp_path, [leads(450), shrinks(18_000, new="1")], *HEAD, *log)
    assert proposals(rows) == [(18_000, 2)]


def test_a_clock_that_stepped_is_found_by_proposals_behind_their_records(tmp_path: Path) -> None:
    """No take-over follows, yet a proposal 7 s behind the record that granted it proves a clock 7 s ahead."""
    lines = [leads(450), shrinks(10_000), updated(10_020, 1), shrinks(37_000), shrinks(53_000)]
    log = [decided(5, 10_010, ONE), decided(6, 15_000, TWO), decided(7, 30_010, ONE), decided(8, 35_000, TWO)]
    done, _ = imported(tmp_path, lines, *HEAD, *log, decided(9, 46_005, ONE), decided(10, 50_000, TWO))
    assert spans(done) == [(-10, 10), (6_995, 66_995)]


def test_a_clock_that_was_set_back_is_found_by_lines_before_their_records(tmp_path: Path) -> None:
    """A take-over 7 s before its record proves a clock 7 s behind, also where no removal follows."""
    lines = [shrinks(10_000), updated(10_020, 1), updated(20_005, 2, "1,2,3"), leads(26_010, 3)]
    log = [decided(5, 10_010, ONE), decided(6, 27_000, TWO), decided(7, 33_000, ids(3, 2, 1))]
    done, _ = imported(tmp_path, lines, *HEAD, *log)
    assert spans(done) == [(-10, 10), (-66_995, -6_995)]


def test_lines_of_an_older_topic_of_the_name_are_left_out(tmp_path: Path) -> None:
    """An hour before the topic that the log knows, the name meant another one: no event, no clock, and it is said."""
    lines = [shrinks(-3_590_000), updated(-3_589_980, 1), updated(-3_585_000, 2, "1,2,3")]
    done, rows = imported(tmp_path, lines, *HEAD, decided(5, 10_010, ONE), decided(6, 15_000, TWO))
    assert left_out(done) == {"Shrinking ISR": (1, "server.log:1"), "ISR updated": (2, "server.log:2")}
    assert spans(done) == []
    assert [row["event_type"] for row in rows if row["node_id"] == 1] == []


@pytest.mark.parametrize("apart_ms", [20_000, 7_200_000], ids=["20 s", "2 h"])
def test_a_topic_that_was_made_again_keeps_its_lines(tmp_path: Path, apart_ms: int) -> None:
    """Two topics of one name have the same epochs; each line is of the one that lived, by its leader's topic id."""
    other = bytes(15) + b"\x07"
    again = [topic_of(other, 7, apart_ms), *changes_of(other, 9, apart_ms)]
    lines = [leads(450), shrinks(10_000), updated(10_020, 1), leads(apart_ms + 50, 0, "AAAAAAAAAAAAAAAAAAAABw")]
    lines += [shrinks(apart_ms + 10_000), updated(apart_ms + 10_020, 1)]
    gone = batch(6, framed(9, 0, text_id(TOPIC_ID)), at_ms=START_MS + 12_000)
    done, rows = imported(tmp_path, lines, *HEAD, decided(5, 10_010, ONE), gone, *again)
    echoes = [row for row in rows if row["event_type"] == "ISR_CHANGE" and row["node_id"] == 1]
    assert [row["topic_id"] for row in echoes] == [TOPIC_ID, "00000000-0000-0000-0000-000000000007"]
    assert spans(done) == [(-10, 10)]
    assert left_out(done) == {}


def test_a_leader_of_a_topic_that_the_log_lacks_is_left_out(tmp_path: Path) -> None:
    """A line that names a topic id is about no other topic, however near in time, and neither are the lines behind."""
    lines = [leads(9_000, 0, "AAAAAAAAAAAAAAAAAAAABw"), shrinks(10_000), updated(10_020, 1)]
    done, _ = imported(tmp_path, lines, *HEAD, decided(5, 10_010, ONE))
    counted = {form: lines for form, (lines, _) in left_out(done).items()}
    assert counted == {"Leader starts": 1, "Shrinking ISR": 1, "ISR updated": 1}
    assert spans(done) == []


def test_a_registration_tells_a_clock_that_is_far_off(tmp_path: Path) -> None:
    """The broker epoch names the process: its line an hour before the record shows a clock an hour behind."""
    far = -3_600_000
    registers = Said(far + 410, "[BrokerLifecycleManager id=1] Successfully registered broker 1 with broker epoch 1")
    said = [registers, shrinks(far + 10_000), updated(far + 10_020, 1)]
    done, _ = imported(tmp_path, said, voters(0, 1), batch(1, feature()), batch(2, broker(1)), *TOPIC_BEHIND)
    assert spans(done) == [(far - 10, far + 10)]


def untimed(said: Said) -> Said:
    """As releases before 3.5 write it: without when a member was caught up."""
    return said._replace(message=re.sub(r", lastCaughtUpTimeMs: \d+", "", said.message))


@pytest.mark.parametrize("zone_ms", [-3_600_000, 19_800_000])
def test_without_an_identity_a_distance_is_no_zone(tmp_path: Path, zone_ms: int) -> None:
    """Lines whole hours from the decisions, which show neither a zone nor a process, may be of any topic."""
    lines = [untimed(shrinks(zone_ms + 10_000)), updated(zone_ms + 10_020, 1)]
    done, _ = imported(tmp_path, lines, *HEAD, decided(5, 10_010, ONE))
    assert spans(done) == []
    assert left_out(done) == {"Shrinking ISR": (1, "server.log:1"), "ISR updated": (1, "server.log:2")}


@pytest.mark.parametrize("zone_ms", [-3_600_000, 19_800_000])
def test_the_start_of_a_leader_shows_the_zone(tmp_path: Path, zone_ms: int) -> None:
    """The same lines behind one with the topic's id are that topic's, in the zone that this line shows."""
    lines = [leads(zone_ms + 450), untimed(shrinks(zone_ms + 10_000)), updated(zone_ms + 10_020, 1)]
    done, _ = imported(tmp_path, lines, *HEAD, decided(5, 10_010, ONE))
    assert done.learnt is not None
    assert [(span.zone_ms, span.low_ms, span.high_ms) for span in done.learnt.clocks[1].spans] == [(zone_ms, -10, 10)]
    assert left_out(done) == {}


def test_lines_behind_the_end_of_the_log_are_left_out(tmp_path: Path) -> None:
    """What a name means an hour later is in no record, so that a cut of it is of no topic."""
    cut = Said(3_600_000, "[UnifiedLog partition=t-0, dir=/d] Truncating to offset 90")
    done, rows = imported(tmp_path, [leads(450), cut], *HEAD, decided(5, 10_010, ONE))
    assert left_out(done) == {"Truncating": (1, "server.log:2")}
    assert not [row for row in rows if row["event_type"] == "TRUNCATION"]


def test_what_a_deletion_ends_in_its_own_batch_keeps_its_name(tmp_path: Path) -> None:
    """A change and the deletion of its topic in one batch: the change's row has the topic's name, and its line too."""
    ends = batch(5, change(t0=ONE), framed(9, 0, text_id(TOPIC_ID)), at_ms=START_MS + 10_010)
    done, rows = imported(tmp_path, [leads(450), shrinks(10_000), updated(10_020, 1)], *HEAD, ends)
    assert {row["topic"] for row in rows if row["event_type"] == "ISR_CHANGE"} == {"t"}
    assert left_out(done) == {}


def test_a_log_that_begins_within_a_process_is_of_that_process() -> None:
    """Lines before the first registration of a metadata log that begins with a snapshot are of the one in it."""
    lives = {"t": [TopicLife(TOPIC_ID, 0, 9_000)]}
    later = Registration(5_000, 90, NodeId(1), 90, False)
    known = Skeleton(topics=lives, registrations=[later], registered_before={1: 4}, last_ms=9_000)
    facts = [Logged(at_ms, CutDone("t", 0, 7), "f:1") for at_ms in (1_000, 6_000)]
    story = BrokerStory(1, BrokerClock([], None), known, facts, join(1, facts, known))
    assert [placed.incarnation for placed in story.events()] == [4, 90]


TOPIC_BEHIND = (batch(3, topic(), setting("2"), partition(1, 2, 3)), decided(6, 10_010, ONE))


def text_id(topic_id: str) -> bytes:
    """The body of a record that names a topic alone."""
    return bytes.fromhex(topic_id.replace("-", "")) + b"\0"


def topic_of(topic_id: bytes, offset: int, at_ms: int) -> bytes:
    """Another topic t with a partition 0."""
    made = (topic(), partition(1, 2, 3))
    own = [one.replace(bytes.fromhex(TOPIC_ID.replace("-", "")), topic_id) for one in made]
    return batch(offset, *own, at_ms=START_MS + at_ms)


def changes_of(topic_id: bytes, offset: int, at_ms: int) -> list[bytes]:
    """Its first removal."""
    own = change(t0=ONE).replace(bytes.fromhex(TOPIC_ID.replace("-", "")), topic_id)
    return [batch(offset, own, at_ms=START_MS + at_ms + 10_010)]
