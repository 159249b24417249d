"""Changes of settings and their descriptions on the wire, entry by entry (C101)."""

from __future__ import annotations

import pytest

from strandline.core.control.messages import (
    ConfigChange,
    ConfigsDescribed,
    DescribedConfigs,
    TopicRef,
    TopicResult,
    TopicsChanged,
)
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import ConfigSource, TopicConfig
from strandline.rpc.convert import configs as convert
from strandline.v1 import controller_service_pb2 as pb

SET, DELETE = pb.CONFIG_OPERATION_UNSPECIFIED, pb.CONFIG_OPERATION_DELETE
TOPIC = pb.CONFIG_RESOURCE_TYPE_TOPIC


def resource(*configs: pb.AlterableConfig, resource_type: int = TOPIC) -> pb.AlterConfigsResource:
    """Changes of topic t."""
    return pb.AlterConfigsResource(resource_type=resource_type, resource_name="t", configs=configs)  # type: ignore[arg-type]


def change(*configs: pb.AlterableConfig, resource_type: int = TOPIC) -> ConfigChange:
    """The one change of a request."""
    request = pb.IncrementalAlterConfigsRequest(resources=[resource(*configs, resource_type=resource_type)])
    (read,) = convert.read_incremental(request).topics
    return read


def test_values_are_given_and_taken_back() -> None:
    """SET and DELETE of one topic are one change of it."""
    read = change(
        pb.AlterableConfig(name="b", config_operation=SET, value="2"),
        pb.AlterableConfig(name="a", config_operation=SET, value=""),
        pb.AlterableConfig(name="c", config_operation=DELETE),
    )

    assert read == ConfigChange(TopicRef("t", ""), (("a", ""), ("b", "2")), ("c",))


@pytest.mark.parametrize(
    ("configs", "code", "words"),
    [
        ([pb.AlterableConfig(name="a", value="1")] * 2, ErrorCode.INVALID_REQUEST, "named twice"),
        (
            [pb.AlterableConfig(name="a", value="1", config_operation=pb.CONFIG_OPERATION_APPEND)],
            ErrorCode.INVALID_CONFIG,
            "for lists",
        ),
        (
            [pb.AlterableConfig(name="a", value="1", config_operation=pb.CONFIG_OPERATION_SUBTRACT)],
            ErrorCode.INVALID_CONFIG,
            "for lists",
        ),
        ([pb.AlterableConfig(name="a")], ErrorCode.INVALID_CONFIG, "has no value"),
    ],
)
def test_a_change_that_cannot_be_read_is_refused_whole(
    configs: list[pb.AlterableConfig], code: ErrorCode, words: str
) -> None:
    """The refusal names setting, rule and remedy, and nothing of the entry remains."""
    read = change(*configs, pb.AlterableConfig(name="z", value="9"))

    assert read.invalid is not None
    assert read.invalid.code is code
    assert words in read.invalid.message
    assert (read.set_configs, read.delete_configs) == ((), ())


@pytest.mark.parametrize(("number", "words"), [(pb.CONFIG_RESOURCE_TYPE_NODE, "restart"), (0, "TOPIC"), (17, "17")])
def test_only_topics_have_settings_that_change(number: int, words: str) -> None:
    """A node's settings, and whatever is not known, are refused with the remedy."""
    read = change(pb.AlterableConfig(name="a", value="1"), resource_type=number)
    asked = convert.read_describe_configs(
        pb.DescribeConfigsRequest(resources=[pb.DescribeConfigsResource(resource_type=number, resource_name="1")])  # type: ignore[arg-type]
    )

    assert read.invalid is not None
    assert words in read.invalid.message
    assert asked.topics[0].invalid == read.invalid


def test_answers_are_in_the_order_of_the_request() -> None:
    """Each entry has its own row under the type and name that it was asked by."""
    request = pb.IncrementalAlterConfigsRequest(resources=[resource(), resource(resource_type=4)])
    refusal = Refusal(ErrorCode.INVALID_REQUEST, "a node")
    answer = TopicsChanged(topics=(TopicResult(TopicRef("t", "id")), TopicResult(TopicRef("t"), refusal)))

    rows = convert.write_incremental(request, answer).responses

    assert [(row.resource_type, row.resource_name, row.error_code) for row in rows] == [
        (TOPIC, "t", 0),
        (pb.CONFIG_RESOURCE_TYPE_NODE, "t", ErrorCode.INVALID_REQUEST),
    ]


def test_described_settings_arrive_as_they_left() -> None:
    """Value, source and default come back; the value of each node's own stays absent."""
    configs = (
        TopicConfig("a", "1", ConfigSource.TOPIC, "2"),
        TopicConfig("b", None, ConfigSource.NODE, "3"),
        TopicConfig("c", "4", ConfigSource.DEFAULT, "4"),
    )
    request = pb.DescribeConfigsRequest(
        resources=[pb.DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["a"])]
    )
    answer = ConfigsDescribed(topics=(DescribedConfigs(TopicRef("t"), None, configs),))

    (row,) = convert.write_configs_described(request, answer).results

    assert convert.read_describe_configs(request).topics[0].names == ("a",)
    assert tuple(convert.read_described(row)) == configs
