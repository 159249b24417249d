"""Which series of a Prometheus are read as the ends of logs, in which forms, and how others are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping as Map
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline_kafka.metadata.wire import Unreadable
from strandline_kafka.scrapes import series
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
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7.5 100', "7.5 of a-0 on node 1 is no offset"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} -1 100', "-1 of a-0 on node 1 is no offset"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7 never', "ends.txt:1: never is no time"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7 nan', "nan is no time in seconds since 1970"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7 1e999', "is no time in seconds since 1970"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} inf 5', "inf of a-0 on node 1 is no offset"),
        (f'{NAME}{{broker="1",topic="a",partition="0"}} 7 -5', "is no time in seconds since 1970"),
        (f'{NAME}{{broker=1,topic="a"}} 7 100', "are no labels"),
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
