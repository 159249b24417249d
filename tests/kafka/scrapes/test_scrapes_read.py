"""Which series of a Prometheus are read as the ends of logs, and where they lie between decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping as Map
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from kafka_export import Row, rows_of

from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.export.destination import LocalDirectory
from strandline.export.verify import Completeness, verify
from strandline_kafka.metadata.state import Broker, ClusterState, Partition
from strandline_kafka.metadata.wire import Unreadable
from strandline_kafka.scrapes import series
from strandline_kafka.scrapes.following import Following
from strandline_kafka.scrapes.prometheus import selector
from strandline_kafka.scrapes.series import Form, Mapping, Reader, Scrapes, read_mapping

NODES = Mapping(nodes={"k1:7071": 1, "k2:7071": 2})
NAME = "kafka_log_log_logendoffset"


def read(*lines: str, mapping: Mapping = NODES) -> Scrapes:
    reader = Reader(mapping)
    reader.take_text("ends.txt", lines)
    return reader.found()


def ends(scrapes: Scrapes) -> dict[tuple[int, str, int], list[tuple[int, int]]]:
    return {
        (node, *place): list(zip(one.times, one.ends, strict=True))
        for node, several in scrapes.by_node.items()
        for place, one in several.items()
    }


def matrix(*several: tuple[Map[str, str], list[list[Any]]], **more: Any) -> bytes:
    result = [{"metric": metric, "values": values} for metric, values in several]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}} | more).encode()


@pytest.mark.parametrize(
    "line",
    [
        f'{NAME}{{instance="k1:7071",topic="orders",partition="0"}} 7 1700000000.250',
        f'{NAME}{{instance="k1:7071",topic="orders",partition="0"}} 7 1700000000250',
        f'{{__name__="{NAME}",instance="k1:7071",topic="orders",partition="0"}} 7 1700000000250',
        'kafka_log_Log_LogEndOffset{broker="1",topic="orders",partition="0",} 7.0 1.70000000025e+09',
        'kafka_log_Log_Value{node_id="1",name="LogEndOffset",topic="\\"orders\\"",partition="0"} 7 1700000000.25',
    ],
)
def test_both_rule_sets_and_all_forms_of_a_line_are_one_sample(line: str) -> None:
    """OpenMetrics with seconds, Prometheus's format with milliseconds, its dump, and the exporter without a rule."""
    assert ends(read(line)) == {(1, "orders", 0): [(1_700_000_000_250, 7)]}


def test_what_is_another_metric_is_passed_over() -> None:
    """Other metrics, other attributes of the log, comments, and scrapes that failed say nothing."""
    found = read(
        "# HELP x y",
        f'{NAME}{{instance="k1:7071",topic="a",partition="0"}} NaN 1700000000',
        f'{NAME}{{instance="k1:7071",topic="a",partition="0"}} 5 1700000015',
        'kafka_log_log_logstartoffset{instance="k1:7071",topic="a",partition="0"} 3 1700000015',
        'kafka_log_Log_Value{broker="1",name="Size",topic="a",partition="0"} 3 1700000015',
        "up 1",
        "# EOF",
    )
    assert ends(found) == {(1, "a", 0): [(1_700_000_015_000, 5)]}


def test_an_answer_of_the_api_is_read_as_a_text_is() -> None:
    """A matrix has its times in seconds and its values as texts."""
    labels = {"__name__": NAME, "instance": "k1:7071", "topic": "a", "partition": "0"}
    reader = Reader(NODES)
    assert reader.take_answer("x", matrix((labels, [[1700000000.5, "1"], [1700000015.5, "4"]]))) == 1
    assert ends(reader.found()) == {(1, "a", 0): [(1_700_000_000_500, 1), (1_700_000_015_500, 4)]}


def test_a_broker_that_came_back_at_another_address_is_one() -> None:
    """Two series of one replica, one after the other, are joined; at the same time they are refused."""
    mapping = Mapping(nodes={"old": 1, "new": 1})
    lines = [
        f'{NAME}{{instance="{who}",topic="a",partition="0"}} {at} {at}' for who, at in (("new", 200), ("old", 100))
    ]
    assert ends(read(*lines, mapping=mapping)) == {(1, "a", 0): [(100_000, 100), (200_000, 200)]}
    again = f'{NAME}{{instance="old",topic="a",partition="0"}} 7 200'
    with pytest.raises(Unreadable, match=r"two series are of a-0 on node 1 at the same time, .* under \[where\]"):
        read(*lines, again, mapping=mapping)


def test_steps_are_no_scrapes() -> None:
    """Values of two brokers at the same milliseconds come of query_range, and are refused with what to ask."""
    lines = [f'{NAME}{{broker="{node}",topic="a",partition="0"}} 5 {at}' for node in (1, 2) for at in (100, 115, 130)]
    with pytest.raises(Unreadable, match=r"nodes 1 and 2 have values at the same milliseconds: .* /api/v1/query"):
        read(*lines)
    apart = [*lines[:3], *(line.replace("100", "101").replace("5 1", "5 2") for line in lines[3:])]
    assert read(*apart).period_ms() == 15_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            f'{NAME}{{broker="1",topic="a",partition="0"}} 7',
            "ends.txt:1: the line has no time, and one scrape does not",
        ),
        (f'{NAME}{{instance="k9:1",topic="a",partition="0"}} 7 100', "is not known (instance='k9:1'); name it under"),
        (f'{NAME}{{topic="a",partition="0"}} 7 100', "is not known (no such label)"),
        (f'{NAME}{{broker="1",partition="0"}} 7 100', "has no labels topic and partition with a topic and a number"),
        (f'{NAME}{{broker="1",topic="a",partition="x"}} 7 100', "has no labels topic and partition"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7.5 100', "7.5 of a-0 on node 1 is not an offset"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} -1 100', "-1 of a-0 on node 1 is not an offset"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7 never', "ends.txt:1: never is no time"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7 nan', "nan is not a time in seconds since 1970"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7 1e999', "is not a time in seconds since 1970"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} inf 5', "inf of a-0 on node 1 is not an offset"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7 -5', "is not a time in seconds since 1970"),
        (f'{NAME}{{broker=1,topic="a"}} 7 100', "are not labels"),
        ("up 1 100", 'there is no kafka_log_log_logendoffset and no kafka_log_log_value{name="LogEndOffset"}; name'),
    ],
)
def test_what_cannot_be_read_is_named(line: str, said: str) -> None:
    """Each fault of a line is one sentence with the line and the remedy."""
    with pytest.raises(Unreadable) as refused:
        read(line)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>", "x: no JSON of Prometheus"),
        (b'{"status":"error","error":"parse error"}', "x: Prometheus answered: parse error"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', "is a vector and must be a matrix: ask"),
        (b'{"status":"success"}', "x: the answer has not the form of Prometheus's API"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[{}]}}', "has not the form"),
        (matrix(({"__name__": NAME, "broker": "1", "topic": "a", "partition": "0"}, [["x", "1"]])), "x: x is no time"),
    ],
)
def test_an_answer_that_is_none_is_named(content: bytes, said: str) -> None:
    """Errors of Prometheus are passed on; another result than a matrix is refused with what to ask."""
    with pytest.raises(Unreadable) as refused:
        Reader(NODES).take_answer("x", content)
    assert said in str(refused.value)


def test_more_samples_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of an import is bounded, and the sentence says what to give instead."""
    monkeypatch.setattr(series, "MOST_SAMPLES", 2)
    with pytest.raises(Unreadable, match="more than 2 samples; give --from and --to, or fewer brokers"):
        read(*(f'{NAME}{{broker="1",topic="a",partition="0"}} 7 {at}' for at in (100, 115, 130)))


def test_one_scrape_has_no_period() -> None:
    """Without two scrapes of a broker nothing says how exact a sample is."""
    with pytest.raises(Unreadable, match="no broker was scraped twice"):
        read(f'{NAME}{{broker="1",topic="a",partition="0"}} 7 100').period_ms()


def test_a_mapping_of_its_own(tmp_path: Path) -> None:
    """A file names the metric, the labels, which series, and the brokers; it is also what Prometheus is asked by."""
    path = tmp_path / "map.toml"
    path.write_text(
        'metric = "Broker_Log_End"\ntopic = "t"\npartition = "p"\nnode = "pod"\n'
        '[where]\ncluster = "a\\"b"\n[nodes]\nkafka-0 = 7\n'
    )
    mapping = read_mapping(path)
    lines = [f'broker_log_end{{pod="kafka-0",t="x",p="3",cluster="{name}"}} 5 100' for name in ('a\\"b', "other")]
    assert ends(read(*lines, mapping=mapping)) == {(7, "x", 3): [(100_000, 5)]}
    assert [selector(form) for form in mapping.forms] == ['{__name__=~"(?i:broker_log_end)",cluster="a\\"b"}']


def test_nodes_alone_leave_both_rule_sets(tmp_path: Path) -> None:
    """A file that only numbers the brokers changes nothing else."""
    path = tmp_path / "map.toml"
    path.write_text('[nodes]\n"k1:7071" = 1\n[where]\nenv = "x"\n')
    assert read_mapping(path).forms == (
        Form(NAME, (("env", "x"),)),
        Form("kafka_log_log_value", (("name", "LogEndOffset"), ("env", "x"))),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("metrics = 'x'", "'metrics' is not known; known are metric, topic, partition, node, where, nodes"),
        ("metric = 'a b'", "metric must be the name of a metric or label"),
        ("metric = 5", "metric must be the name"),
        ("[nodes]\na = 'x'", "[nodes] must be a table of numbers"),
        ("[nodes]\na = true", "[nodes] must be a table of numbers"),
        ("[nodes]\na = -1", "a broker's number is not negative"),
        ("where = 'x'", "[where] must be a table of texts"),
        ("metric = ", "map.toml: Invalid value"),
    ],
)
def test_a_mapping_that_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    """A name that is not known, or a value of another kind, is one sentence with the file."""
    path = tmp_path / "map.toml"
    path.write_text(text)
    with pytest.raises(Unreadable) as refused:
        read_mapping(path)
    assert said in str(refused.value)


PIECES = st.sampled_from(
    [NAME, "{", "}", '"', "=", ",", "broker", "topic", "partition", "\\", "1", " ", "nan", "1e999", "é"]
)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["1", "x", NAME]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["status", "data", "resultType", "result", "metric", "values", "__name__", "broker"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=20).map("".join), JSON)
def test_arbitrary_input_is_read_or_unreadable(line: str, said: Any) -> None:
    """No line and no answer fails in any other way, whatever a stranger sends."""
    found = {"resultType": "matrix", "result": [{"metric": {"__name__": NAME, "broker": "1"}, "values": said}]}
    answers = [said, {"status": "success", "data": said}, {"status": "success", "data": found}]
    for content in (json.dumps(answer).encode() for answer in answers):
        with suppress(Unreadable):
            Reader(NODES).take_answer("x", content)
    with suppress(Unreadable):
        Reader(NODES).take_text("x", [line, f'{NAME}{{broker="1",topic="a",partition="0"}} {line}'])


# Scrapes between the decisions of a metadata log: whose samples they are, within which bounds, and what voids them.


TP = TopicPartition("11111111-2222-3333-4444-555555555555", 0)
NODES_FOLLOWING = tuple(map(NodeId, (1, 2, 3)))
ALWAYS = (0, 1 << 62)


def scraped(ends: dict[int, dict[int, int]]) -> Scrapes:
    """Ends of t-0 by broker and second."""
    reader = Reader(Mapping())
    for node, several in ends.items():
        for at_s, end in several.items():
            reader.take_text(
                "x", [f'kafka_log_log_logendoffset{{broker="{node}",topic="t",partition="0"}} {end} {at_s}.{node}']
            )
    return reader.found()


def state(leader: int | None = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2, 3), down: int = 0) -> ClusterState:
    found = ClusterState(topics={TP.topic_id: "t"}, ids={"t": TP.topic_id})
    members = tuple(map(NodeId, isr))
    held = Partition(
        TP, NODES_FOLLOWING, members, (), (), (), (), None if leader is None else NodeId(leader), LeaderEpoch(epoch),
        PartitionEpoch(epoch), False,
    )  # fmt: skip
    found.put(held)
    for node in NODES_FOLLOWING:
        found.brokers[node] = Broker(
            broker_id=node, broker_epoch=1, rack=None, fenced=node == down, shutting_down=False
        )
    return found


def samples_of(out: Path, kind: str = "REPLICA_SAMPLE") -> list[Row]:
    return sorted(rows_of(out, kind=kind), key=lambda row: (row["ts_wall_us"], row["seq"]))


def followed(
    out: Path, scrapes: Scrapes, *states: tuple[float, ClusterState], window: tuple[int, int] = ALWAYS
) -> Following:
    """Pass all states, each up to its time in seconds; a state of another epoch begins where the one before ends."""
    following = Following(scrapes, LocalDirectory(out), "c", window)
    began_s, epoch = 0.0, -1
    for until_s, held in states:
        partition = held.partitions[TP]
        if partition.leader_epoch != epoch:
            following.elected(partition, round(began_s * 1000))
            epoch = int(partition.leader_epoch)
        following.pass_until(round(until_s * 1000), held)
        began_s = until_s
    following.end(round(states[-1][0] * 1000), states[-1][1])
    return following


STEADY = {node: {at: at * 10 for at in range(100, 200, 10)} for node in (1, 2, 3)}
"""Ten records a second, everybody level; a period of 10 s."""


def test_a_follower_is_within_two_periods_of_its_leader(tmp_path: Path) -> None:
    """The lower end is that of a scrape a period before, the upper one that of a period after, at most the leader's."""
    following = followed(tmp_path, scraped(STEADY), (300, state()))
    of_2 = {row["ts_wall_us"] // 1_000_000: row for row in samples_of(tmp_path) if row["replica_id"] == 2}
    # Node 2 is scraped 0.1 s behind node 1, so that of its scrapes that at 130.2 is the last before 140.1 - 10.
    assert (of_2[140]["leader_leo"], of_2[140]["leo"]) == (1400, 1200)
    assert (of_2[140]["ext"]["lag_low"], of_2[140]["ext"]["lag_high"]) == ("0", "200")
    assert "leo" not in of_2[100] and "lag_high" not in of_2[100]["ext"]
    assert following.bounds.looks == 2 * 8 and following.bounds.widest == 200


def test_a_follower_that_stands_still_is_known_exactly(tmp_path: Path) -> None:
    """Where the log of a follower is equal before and after, its lag is one number."""
    ends = STEADY | {3: dict.fromkeys(STEADY[3], 1000)}
    followed(tmp_path, scraped(ends), (300, state(isr=(1, 2))))
    of_3 = next(row for row in samples_of(tmp_path) if row["replica_id"] == 3 and row["leader_leo"] == 1500)
    assert (of_3["leo"], of_3["ext"]["lag_low"], of_3["ext"]["lag_high"]) == (1000, "500", "500")
    assert (of_3["in_isr"], of_3["expected_state"]) == (False, "catching_up")


def test_what_no_scrape_says_is_null(tmp_path: Path) -> None:
    """There is no high watermark, no byte, no time of a fetch; the leader's own row has its end."""
    followed(tmp_path, scraped(STEADY), (300, state()))
    own = next(row for row in samples_of(tmp_path) if row["replica_id"] == 1)
    assert (own["node_id"], own["leo"], own["leader_leo"]) == (1, 1000, 1000)
    nothing = {
        "hw", "acked_offset", "log_start", "durable_leo", "leo_bytes", "hw_bytes", "last_fetch_us",
        "last_caught_up_us", "in_maximal_isr",
    }  # fmt: skip
    assert not nothing & own.keys()
    assert own["ext"] == {"clock": "wall", "observer": "prometheus"}


def test_a_change_of_leader_voids_what_touches_it(tmp_path: Path) -> None:
    """A scrape whose answer may be of either leader makes no sample, and is a gap; nothing is carried over a cut."""
    ends = STEADY | {2: {at: 5 * at for at in STEADY[2]}}
    done = followed(tmp_path, scraped(ends), (145, state()), (300, state(leader=2, epoch=1, isr=(2, 3))))
    leaders = [(r["ts_wall_us"] // 1_000_000, r["node_id"], r["leader_epoch"]) for r in samples_of(tmp_path)]
    assert sorted({*leaders}) == [
        *((at, 1, 0) for at in (100, 110, 120, 130)), *((at, 2, 1) for at in (150, 160, 170, 180, 190)),
    ]  # fmt: skip
    assert done.voided == {"its leader epoch began or ended meanwhile": 1}
    first = next(row for row in samples_of(tmp_path) if row["replica_id"] == 3 and row["leader_epoch"] == 1)
    assert "leo" not in first
    (gap,) = samples_of(tmp_path, "EXPORT_GAP")
    assert (gap["node_id"], gap["dropped_by_type"]) == (1, {"REPLICA_SAMPLE": 3})


def test_a_topic_that_is_made_again_bounds_no_sample_of_the_first(tmp_path: Path) -> None:
    """What is scraped under a name behind the deletion of its topic is of another log."""
    ends = {node: {at: end if at < 145 else 3 for at, end in several.items()} for node, several in STEADY.items()}
    following = Following(scraped(ends), LocalDirectory(tmp_path), "c", ALWAYS)
    held = state()
    following.elected(held.partitions[TP], 0)
    following.pass_until(145_000, held)
    following.deleted(held.partitions[TP], 145_000)
    following.end(300_000, ClusterState())
    assert following.voided == {"its leader epoch began or ended meanwhile": 1}
    assert max(row["ts_wall_us"] // 1_000_000 for row in samples_of(tmp_path)) == 130
    (of_2,) = (r for r in samples_of(tmp_path) if r["replica_id"] == 2 and r["leader_leo"] == 1300)
    assert (of_2["ext"]["lag_low"], of_2["ext"]["lag_high"]) == ("0", "200")


def test_scrapes_that_failed_are_a_gap(tmp_path: Path) -> None:
    """A leader that was not scraped twice misses two looks at three replicas."""
    ends = STEADY | {1: {at: end for at, end in STEADY[1].items() if at not in (140, 150)}}
    done = followed(tmp_path, scraped(ends), (300, state()))
    assert done.voided == {"its leader was not scraped": 2}
    (gap,) = samples_of(tmp_path, "EXPORT_GAP")
    assert (gap["node_id"], gap["dropped_by_type"]) == (1, {"REPLICA_SAMPLE": 6})
    found = verify(LocalDirectory(tmp_path), "c")
    assert {one.node_id: one.completeness for one in found.incarnations} == {1: Completeness.GAPS_REPORTED}


def test_without_a_leader_there_is_no_sample(tmp_path: Path) -> None:
    """Scrapes of a partition without a leader give no sample."""
    followed(tmp_path, scraped(STEADY), (300, state(leader=None)))
    assert samples_of(tmp_path) == []


def test_a_broker_that_is_down_is_expected_to_be(tmp_path: Path) -> None:
    """What is expected of a replica is by the registration of its broker at that moment."""
    followed(tmp_path, scraped(STEADY), (300, state(isr=(1, 2), down=3)))
    assert {row["expected_state"] for row in samples_of(tmp_path) if row["replica_id"] == 3} == {"down"}


def test_logs_where_the_metadata_log_has_none_are_named(tmp_path: Path) -> None:
    """A broker that has a log of a partition which is placed elsewhere has the wrong number."""
    done = followed(tmp_path, scraped(STEADY | {9: STEADY[2]}), (300, state()))
    assert done.misplaced == {("t", 0, 9)}
    assert done.said()["misplaced"] == 1


@pytest.mark.parametrize(("from_s", "to_s", "looks"), [(0, 120, 2), (130, 151, 3), (300, 400, 0)])
def test_a_window_has_the_scrapes_within_it(tmp_path: Path, from_s: int, to_s: int, looks: int) -> None:
    """Scrapes outside the window bound those within, and are no samples."""
    window = (from_s * 1_000_000, to_s * 1_000_000)
    followed(tmp_path, scraped(STEADY), (300, state()), window=window)
    assert len({row["sample_id"] for row in samples_of(tmp_path)}) == looks
