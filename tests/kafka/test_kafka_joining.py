"""Brokers' log lines: their layouts, their forms, and the decisions they are joined to."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st
from kafka_export import Row, rows_of
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
from strandline_kafka.brokers.broker_clocks import BrokerClock
from strandline_kafka.brokers.broker_events import BrokerStory
from strandline_kafka.brokers.broker_logs import Logged, read_logs
from strandline_kafka.brokers.joining import join
from strandline_kafka.brokers.line_facts import CutDone, IsrUpdated, OutOfSync, Setting, ShrinkProposed
from strandline_kafka.brokers.line_forms import FAMILIES, FORMS, LineForm, may_matter, read_message, read_setting
from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, JSON_LAYOUT, LineParts, layout_of
from strandline_kafka.metadata.importing import Import, Imported
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.skeleton import Registration, Skeleton, TopicLife
from strandline_kafka.metadata.wire import Unreadable

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
    return done, rows_of(tmp_path / "out")


def spans(done: Imported) -> list[tuple[int, int]]:
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


# The table of line forms: each sample is read by its own row, and what fits no row is never guessed.


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.family} {form.releases}")
def test_each_sample_fits_its_row_alone(form: LineForm) -> None:
    """A sample is found by its family's words, and by no other row of the family."""
    fitting = [other for other in FORMS if other.family == form.family and other.expression.fullmatch(form.sample)]
    assert fitting == [form]
    read = read_message(form.sample)
    assert (read.family, type(read.fact)) == (form.family, type(form.fact(form.expression.fullmatch(form.sample))))  # type: ignore[arg-type]
    assert may_matter(form.sample)


def test_every_family_but_one_has_a_form() -> None:
    """Expansions are known by their words only: releases with KRaft do not log them."""
    assert FAMILIES.keys() - {form.family for form in FORMS} == {"expansion"}


def test_a_removal_gives_positions_and_members() -> None:
    """HW, LEO and each member with its end offset and the moment when it was last caught up."""
    read = read_message(
        "[Partition a-b.c-12 broker=3] Shrinking ISR from 1,2,3 to 3. Leader: (highWatermark: 9, endOffset: 12). Out "
        "of sync replicas: (brokerId: 1, endOffset: 9, lastCaughtUpTimeMs: 1000) (brokerId: 2, endOffset: unknown, "
        "lastCaughtUpTimeMs: -1)."
    )
    removed = (OutOfSync(1, 9, 1000), OutOfSync(2, None, None))
    assert read.fact == ShrinkProposed("a-b.c", 12, 3, (1, 2, 3), (3,), 9, 12, removed)


def test_an_older_release_leaves_what_it_does_not_say_open() -> None:
    """Without lastCaughtUpTimeMs the moment is not known, and without offsets nothing but the members is."""
    untimed, bare = (form.sample for form in FORMS if form.releases in ("2.2 to 3.4", "before 2.2"))
    found = [read.fact for text in (untimed, bare) if (read := read_message(text)) is not None]
    assert [(one.hw, one.removed) for one in found if isinstance(one, ShrinkProposed)] == [
        (150, (OutOfSync(2, 132, None),)),
        (None, (OutOfSync(4, None, None),)),
    ]


def test_a_take_over_below_the_minimum_is_one_too() -> None:
    """The words about the minimum do not hide the partition epoch."""
    read = read_message("[Partition orders-0 broker=1] ISR updated to 2 (under-min-isr) and version updated to 7")
    assert read.fact == IsrUpdated("orders", 0, 1, (2,), 7)


@pytest.mark.parametrize(
    ("message", "family"),
    [
        ("[Partition orders-0 broker=1] Expanding ISR from 1,2 to 1,2,3", "expansion"),
        ("[Partition orders-0 broker=1] Shrinking ISR from 1,2 to 1 because of the moon", "shrink"),
        ("[QuorumController id=3] Fencing broker 2 because nobody likes it.", "fence"),
        ("[Partition orders-0 broker=1] ISR updated to 1,2  and version updated to 9999999999", "update"),
    ],
)
def test_a_line_of_a_family_that_fits_no_row_is_counted_and_not_guessed(message: str, family: str) -> None:
    """Its family is known, and no fact comes of it."""
    read = read_message(message)
    assert (read.family, read.fact) == (family, None)


def test_settings_are_a_closed_list() -> None:
    """Of a block of settings those of the list are read; no other value leaves the reader."""
    assert read_setting("\treplica.lag.time.max.ms = 4000") == Setting("replica.lag.time.max.ms", 4000)
    for text in ("\tssl.key.password = 12345", "\tmin.insync.replicas = two", "min.insync.replicas = 2"):
        assert read_setting(text) is None


# How lines of brokers' logs are taken apart: patterns of log4j, JSON layouts, dates and zones.


AT_MS = 1_795_387_881_246
MESSAGE = "[Partition orders-0 broker=1] ISR updated to 1,2  and version updated to 1"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (DEFAULT_PATTERN, f"[2026-11-22 22:51:21,246] INFO {MESSAGE} (kafka.cluster.Partition)"),
        (
            "%d{ISO8601} %-5p [%t] %c - %m%n",
            f"2026-11-22T22:51:21,246 INFO  [main] kafka.cluster.Partition - {MESSAGE}",
        ),
        (
            "%d{yyyy-MM-dd HH:mm:ss.SSSXXX} [%X{node}] %level %logger: %msg%n%throwable",
            f"2026-11-23 00:51:21.246+02:00 [n1] INFO kafka.cluster.Partition: {MESSAGE}",
        ),
    ],
)
def test_a_pattern_gives_time_message_and_logger(pattern: str, text: str) -> None:
    """A line that the pattern wrote gives the same three parts, whatever their order; a zone is taken off."""
    assert layout_of(pattern).parts(text) == LineParts(AT_MS, MESSAGE, "kafka.cluster.Partition")


@pytest.mark.parametrize(
    ("date", "written"),
    [
        ("%d{DEFAULT_MICROS}", "2026-11-22 22:51:21,246789"),
        ("%d{ISO8601_BASIC}", "20261122T225121,246"),
        ("%d{COMPACT}", "20261122225121246"),
        ("%d{DATE}", "22 Nov 2026 22:51:21,246"),
        ("%date{dd/MMM/yyyy HH:mm:ss.SSS}", "22/nov/2026 22:51:21.246"),
        ("%d{yyyy/MM/dd HH:mm:ss.SSS}", "2026/11/22 22:51:21.246"),
        ("%d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}", "2026-11-22T22:51:21.246Z"),
        ("%d{yyyy-MM-dd HH:mm:ss,SSS Z}", "2026-11-23 00:51:21,246 +0200"),
        ("%d{ISO8601}{UTC}", "2026-11-22T22:51:21,246"),
        ("%d{yyyy-MM-dd HH:mm:ss,SSS}{Europe/Berlin}", "2026-11-22 23:51:21,246"),
        ("%d{ISO8601}{America/St_Johns}", "2026-11-22T19:21:21,246"),
    ],
)
def test_a_date_of_any_format_is_read(date: str, written: str) -> None:
    """Formats by name and by letters give one moment; a zone that the text or the pattern names is taken off."""
    line = layout_of(f"{date} [%t] %-5p %c{{1}} - %m%n").parts(f"{written} [main] INFO  Partition - {MESSAGE}")
    assert line == LineParts(AT_MS, MESSAGE, "Partition")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%d{yyyy-MM-dd HH:mm:ss} %m%n", f"2026-11-22 22:51:21 {MESSAGE}"),
        (JSON_LAYOUT, json.dumps({"@timestamp": "2026-11-22T22:51:21Z", "message": MESSAGE})),
    ],
)
def test_whole_seconds_are_known_to_be_coarse(pattern: str, text: str) -> None:
    """A time without a fraction may be up to a second later than it says."""
    assert layout_of(pattern).parts(text) == LineParts(AT_MS // 1_000 * 1_000, MESSAGE, "", 1_000)


def test_each_line_has_the_layout_that_fits_it() -> None:
    """Two patterns, as before and after an upgrade, read a file of both; a line of neither is none."""
    both = layout_of(DEFAULT_PATTERN, "%d %p %m (%c) [%t]%n")
    texts = [f"[2026-11-22 22:51:21,246] INFO {MESSAGE} (k)", f"2026-11-22 22:51:21,246 INFO {MESSAGE} (k) [main]"]
    assert [both.parts(text) for text in texts] == [LineParts(AT_MS, MESSAGE, "k")] * 2
    assert both.parts(f"INFO 2026-11-22 22:51:21,246 {MESSAGE}") is None


@pytest.mark.parametrize(
    "said",
    [
        {"timestamp": "2026-11-22T22:51:21.246Z", "message": MESSAGE, "logger": "k"},
        {"timeMillis": AT_MS, "message": MESSAGE, "loggerName": "k"},
        {"instant": {"epochSecond": 1_795_387_881, "nanoOfSecond": 246_000_000}, "message": MESSAGE, "loggerName": "k"},
        {"@timestamp": "2026-11-22T22:51:21.246Z", "message": MESSAGE, "log.logger": "k"},
    ],
)
def test_json_layouts_give_the_same_parts(said: dict[str, object]) -> None:
    """The layouts of log4j2 that write an object a line name time, message and logger each in their way."""
    assert layout_of(JSON_LAYOUT).parts(json.dumps(said)) == LineParts(AT_MS, MESSAGE, "k")


@pytest.mark.parametrize(
    "text", ["\tat kafka.server.KafkaServer.startup(KafkaServer.scala:1)", "", "[2026-13-45 22:51:21,246] INFO x (y)"]
)
def test_a_line_of_another_layout_is_no_line(text: str) -> None:
    """The rest of a stack trace, an empty line and a date that is none have no parts."""
    assert layout_of(DEFAULT_PATTERN).parts(text) is None


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("%p %m%n", "must have %d once"),
        ("%d %p%n", "must have %m once"),
        ("%d{HH:mm} %m%n", "has a date that is not read: the date 'HH:mm' has no year"),
        ("%d{ABSOLUTE} %m%n", "has a date that is not read"),
        ("%d{yyyy-MM-dd HH:mm:ss z} %m%n", "has 'z', which is not read"),
        ("%d{yyyy-MM-dd yyyy HH:mm:ss} %m%n", "names one part twice"),
        ("%d{ISO8601}{Moon/Base} %m%n", "the zone 'Moon/Base' is not known; name one as Europe/Berlin"),
        ("x" * 500, "has 500 characters"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str, said: str) -> None:
    """A pattern without a date or a message, or with a date without a day, is refused before a line is read."""
    with pytest.raises(Unreadable, match=said):
        layout_of(pattern)


@given(st.text(max_size=300), st.sampled_from([DEFAULT_PATTERN, JSON_LAYOUT]))
def test_any_text_is_a_line_or_none(text: str, pattern: str) -> None:
    """No text makes a layout fail."""
    found = layout_of(pattern).parts(text)
    assert found is None or isinstance(found.message, str)
