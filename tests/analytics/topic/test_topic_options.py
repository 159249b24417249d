"""The options of the topic source, the position in its checkpoint, and a topic that is deleted."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.fake_cluster import TOPIC, fake_cluster, until

from strandline.client import TopicPartition
from strandline_analytics.topic.cluster import FoundPartitions, read, written
from strandline_analytics.topic.given import TopicFailed
from strandline_analytics.topic.options import read_options
from strandline_analytics.topic.ranges import Extent, OffsetRange
from strandline_analytics.topic.reading import read_range
from strandline_analytics.topic.selection import chosen
from strandline_analytics.topic.where import EARLIEST, LATEST, Times

NEEDED = {"bootstrap": "127.0.0.1:1", "topic": "t"}


def test_defaults_are_kafkas() -> None:
    """A batch reads from earliest to latest, a stream begins at latest; lost data fails the query."""
    batch, stream = read_options(NEEDED, streaming=False), read_options(NEEDED, streaming=True)

    assert (batch.starting, batch.ending, stream.starting) == ("earliest", "latest", "latest")
    assert batch.fail_on_data_loss
    assert stream.max_offsets_per_trigger is None


def test_names_count_in_any_case() -> None:
    """Names of options count in any case, because Spark passes them in lower case."""
    given = NEEDED | {"startingoffsets": '{"t": {"0": 5, "1": -2}}', "MAXOFFSETSPERTRIGGER": "7"}
    options = read_options(given, streaming=True)

    assert options.starting == {TopicPartition("t", 0): 5, TopicPartition("t", 1): EARLIEST}
    assert options.max_offsets_per_trigger == 7


def test_an_end_may_be_given_by_partition() -> None:
    """-1 means latest in the JSON of offsets."""
    options = read_options(NEEDED | {"endingOffsets": '{"t": {"0": 5, "1": -1}}'}, streaming=False)

    assert options.ending == {TopicPartition("t", 0): 5, TopicPartition("t", 1): LATEST}


@pytest.mark.parametrize(
    ("changed", "streaming", "reported"),
    [
        (
            {"topic": ""},
            False,
            "option subscribe: it is missing; name the topics with subscribe, subscribePattern or as",
        ),
        ({"bootstrap": " "}, False, "option bootstrap: it is missing; give the address of any process of the cluster"),
        ({"kafka.bootstrap.servers": "h:1"}, False, "option kafka.bootstrap.servers: it sets the same as bootstrap; "),
        ({"kafka.ssl.protocol": "TLS"}, False, "option kafka.ssl.protocol: the source has no such option; it sets Ka"),
        ({"assign": '{"t": [0]}'}, False, "option topic: assign is given as well; name the topics with subscribe, su"),
        ({"topic": "", "assign": '{"t": [-1]}'}, False, "option assign: it is '{\"t\": [-1]}'; give partitions by to"),
        ({"topic": "", "subscribePattern": "(?=a)"}, False, "option subscribePattern: '(?=a)': "),
        ({"startingTimestamp": "noon"}, False, "option startingTimestamp: it is 'noon'; give ms since 1970"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, True, 'option startingOffsetsByTimestamp: it is \'{"t"'),
        ({"endingTimestamp": "1"}, True, "option endingTimestamp: a stream has no end; leave it out"),
        ({"minOffsetsPerTrigger": "9"}, False, "option minOffsetsPerTrigger: a batch has no triggers; leave it out"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            True,
            "option minOffsetsPerTrigger: it is 9; give at most maxOffsetsPerTrigger, 8",
        ),
        ({"maxTriggerDelay": "soon"}, True, "option maxTriggerDelay: it is 'soon'; give a time with its unit"),
        (
            {"startingOffset": "earliest"},
            False,
            "option startingOffset: the source has no such option; it has bootstra",
        ),
        ({"startingOffsets": "first"}, False, "option startingOffsets: it is 'first'; give earliest, latest, or off"),
        ({"startingOffsets": '{"u": {"0": 1}}'}, True, "option startingOffsets: it is"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, True, "option startingOffsets: it is"),
        ({"startingOffsets": '{"t": [1]}'}, True, "option startingOffsets: it is"),
        ({"startingOffsets": "latest"}, False, "option startingOffsets: it is latest; a batch that starts at the end"),
        ({"endingOffsets": "earliest"}, False, "option endingOffsets: it is earliest; give latest"),
        ({"endingOffsets": "latest"}, True, "option endingOffsets: a stream has no end; leave it out"),
        ({"maxOffsetsPerTrigger": "0"}, True, "option maxOffsetsPerTrigger: it is '0'; give a whole number above 0"),
        ({"maxOffsetsPerTrigger": "9"}, False, "option maxOffsetsPerTrigger: a batch has no triggers; leave it out"),
        ({"minPartitions": "many"}, False, "option minPartitions: it is 'many'; give a whole number above 0"),
        ({"failOnDataLoss": "perhaps"}, False, "option failOnDataLoss: it is 'perhaps'; give true or false"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(changed: dict[str, str], streaming: bool, reported: str) -> None:
    """The message begins with the option and ends with the remedy."""
    with pytest.raises(TopicFailed) as caught:
        read_options(NEEDED | changed, streaming=streaming)

    assert str(caught.value).startswith(reported)


def test_kafkas_names_are_as_good_as_ours() -> None:
    """The options of a job that read Kafka give the same as ours; those that set nothing here are taken."""
    kafkas = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "kafkaConsumer.pollTimeoutMs": "5000",
        "groupIdPrefix": "mine",
        "kafka.group.id": "mine",
    }
    ours = NEEDED | {"fetchTimeoutMs": "5000"}
    found, expected = read_options(kafkas, streaming=True), read_options(ours, streaming=True)

    assert (found.connection, found.fetch_timeout_ms) == (expected.connection, expected.fetch_timeout_ms)
    assert found.selection.topics == expected.selection.topics == ("t",)


COUNTS = {"a": 1, "ab": 2, "b": 3}


@pytest.mark.parametrize(
    ("option", "text", "partitions"),
    [
        ("subscribe", "b, a", [("a", 0), ("b", 0), ("b", 1), ("b", 2)]),
        ("subscribePattern", "a.*", [("a", 0), ("ab", 0), ("ab", 1)]),
        ("subscribePattern", "c+", []),
        ("assign", '{"b": [2, 0], "a": [0]}', [("a", 0), ("b", 0), ("b", 2)]),
    ],
)
def test_partitions_are_selected_by_name_pattern_or_number(
    option: str, text: str, partitions: list[tuple[str, int]]
) -> None:
    """A pattern matches whole names, and may match none; assigned partitions alone are read."""
    options = read_options({"bootstrap": "127.0.0.1:1", option: text}, streaming=False)

    assert chosen(options.selection, COUNTS) == partitions


@pytest.mark.parametrize(
    ("option", "text", "reported"),
    [
        ("subscribe", "a,c", "option subscribe: no topic is named 'c'; the cluster has: a, ab, b; or create it first"),
        ("assign", '{"ab": [2]}', "option assign: it names partition 2 of 'ab'; the topic has partitions 0 to 1"),
    ],
)
def test_what_is_named_must_exist(option: str, text: str, reported: str) -> None:
    """A topic or partition that does not exist is an error that names what does."""
    options = read_options({"bootstrap": "127.0.0.1:1", option: text}, streaming=False)

    with pytest.raises(TopicFailed) as caught:
        chosen(options.selection, COUNTS)

    assert str(caught.value) == reported


def test_one_time_counts_before_times_and_offsets() -> None:
    """Where all three say where to begin, it is startingTimestamp, as in Kafka's source."""
    by_partition = {"startingOffsetsByTimestamp": '{"t": {"0": 7}}', "startingOffsets": "earliest"}
    times = read_options(NEEDED | by_partition, streaming=True).starting
    time = read_options(NEEDED | by_partition | {"startingTimestamp": "9"}, streaming=True).starting

    assert isinstance(times, Times)
    assert isinstance(time, Times)
    assert (times.at_ms, time.at_ms) == ({TopicPartition("t", 0): 7}, 9)


# The position of a stream as its checkpoint keeps it.


FOUND = FoundPartitions(
    {"a": "id-a", "b": "id-b"},
    {TopicPartition("a", 0): Extent(0, 9), TopicPartition("b", 1): Extent(0, 9)},
)


OFFSETS = {TopicPartition("a", 0): 3, TopicPartition("b", 1): 4}


def test_a_position_is_read_as_it_was_written() -> None:
    """Every partition keeps its offset, and every topic its id."""
    position = written(FOUND, OFFSETS)

    assert position == {
        "a": {"topic_id": "id-a", "offsets": {"0": 3}},
        "b": {"topic_id": "id-b", "offsets": {"1": 4}},
    }
    assert read(position, FOUND, fail_on_data_loss=True) == OFFSETS


def test_a_topic_that_is_gone_is_loss() -> None:
    """It is reported, or with failOnDataLoss false left out."""
    position = written(FOUND, OFFSETS)
    left = FoundPartitions({"a": "id-a"}, {TopicPartition("a", 0): Extent(0, 9)})

    with pytest.raises(TopicFailed, match="failOnDataLoss: topic 'b' of the checkpoint is not read any more"):
        read(position, left, fail_on_data_loss=True)
    assert read(position, left, fail_on_data_loss=False) == {TopicPartition("a", 0): 3}


@pytest.mark.parametrize(
    "position", [{"topic_id": "id-a", "offsets": {"0": 3}}, {"a": {"topic_id": "x", "offsets": {}}}]
)
def test_a_position_of_something_else_is_refused(position: dict[str, object]) -> None:
    """Neither another source's checkpoint nor that of an earlier topic of the name is continued."""
    with pytest.raises(TopicFailed, match="begin with a new checkpointLocation"):
        read(position, FOUND, fail_on_data_loss=False)


# The error of a Spark task when its topic is deleted while it reads.


async def test_a_topic_deleted_under_a_task_is_named() -> None:
    """A task that waits for records of a topic that is deleted fails at once and names the option and the topic."""
    async with fake_cluster() as cluster:
        given = {"bootstrap": cluster.bootstrap, "topic": TOPIC, "fetchTimeoutMs": "60000"}
        task = asyncio.create_task(
            asyncio.to_thread(list, read_range(read_options(given, streaming=False), OffsetRange(TOPIC, 0, 0, 5)))
        )
        await until(lambda: bool(cluster.nodes[0].fetched))
        cluster.delete_topic()
        with pytest.raises(TopicFailed, match=f"option topic: .*'{TOPIC}' was deleted"):
            async with asyncio.timeout(10):
                await task
