"""Settings on the wire: changes of single settings, and the values in force (C101).

Invariant: every entry of a request gets its own entry in the answer, in the same order; one that cannot be read is
refused there and leaves the others alone. The core decides which names and values a topic may have.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.core.control import messages
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.messages import ConfigSource, TopicConfig
from strandline.rpc.convert.errors import write_error
from strandline.v1 import controller_service_pb2 as pb

_SOURCES = {
    ConfigSource.TOPIC: pb.CONFIG_SOURCE_TOPIC,
    ConfigSource.NODE: pb.CONFIG_SOURCE_NODE,
    ConfigSource.DEFAULT: pb.CONFIG_SOURCE_DEFAULT,
}
_READ_SOURCES = {number: source for source, number in _SOURCES.items()}


def read_incremental(message: pb.IncrementalAlterConfigsRequest) -> messages.AlterTopicConfigs:
    """Changes of single settings, as changes of their topics."""
    changes = tuple(_read_change(resource) for resource in message.resources)
    cluster_id = message.cluster_id if message.HasField("cluster_id") else None
    return messages.AlterTopicConfigs(cluster_id=cluster_id, topics=changes, validate_only=message.validate_only)


def _read_change(resource: pb.AlterConfigsResource) -> messages.ConfigChange:
    topic = messages.TopicRef(resource.resource_name, "")
    invalid = _wrong_type(resource.resource_type) or _wrong_operation(resource.configs)
    if invalid is not None:
        return messages.ConfigChange(topic, invalid=invalid)
    given = sorted((c.name, c.value) for c in resource.configs if not _deletes(c))
    return messages.ConfigChange(topic, tuple(given), tuple(c.name for c in resource.configs if _deletes(c)))


def _deletes(config: pb.AlterableConfig) -> bool:
    return config.config_operation == pb.CONFIG_OPERATION_DELETE


def _wrong_type(resource_type: int) -> Refusal | None:
    if resource_type == pb.CONFIG_RESOURCE_TYPE_TOPIC:
        return None
    if resource_type == pb.CONFIG_RESOURCE_TYPE_NODE:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "resource_type NODE: a node's settings are given when it starts; change them there and restart it",
        )
    return Refusal(ErrorCode.INVALID_REQUEST, f"resource_type {resource_type} is not known; give TOPIC (2)")


def _wrong_operation(configs: Iterable[pb.AlterableConfig]) -> Refusal | None:
    """Refuse a repeated name, an operation for lists, a missing value."""
    seen: set[str] = set()
    for config in configs:
        name = config.name[:60]
        if config.name in seen:
            return Refusal(ErrorCode.INVALID_REQUEST, f"setting '{name}' is named twice; name it once")
        seen.add(config.name)
        if config.config_operation not in (pb.CONFIG_OPERATION_UNSPECIFIED, pb.CONFIG_OPERATION_DELETE):
            return Refusal(
                ErrorCode.INVALID_CONFIG,
                f"config_operation {config.config_operation} of '{name}' is for lists, which no setting of a topic is; "
                "use SET (0) or DELETE (1)",
            )
        if not _deletes(config) and not config.HasField("value"):
            return Refusal(ErrorCode.INVALID_CONFIG, f"'{name}' has no value; give one, or use DELETE (1)")
    return None


def write_incremental(
    message: pb.IncrementalAlterConfigsRequest, answer: messages.TopicsChanged
) -> pb.IncrementalAlterConfigsResponse:
    """The result of each entry of the request."""
    response = pb.IncrementalAlterConfigsResponse()
    for resource, result in zip(message.resources, answer.topics, strict=True):
        row = response.responses.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        write_error(row, result.refusal)
    return response


def read_describe_configs(message: pb.DescribeConfigsRequest) -> messages.DescribeConfigs:
    """Settings to describe."""
    return messages.DescribeConfigs(
        cluster_id=message.cluster_id if message.HasField("cluster_id") else None,
        topics=tuple(
            messages.ConfigsRef(
                messages.TopicRef(resource.resource_name, ""),
                tuple(resource.configuration_keys),
                _wrong_type(resource.resource_type),
            )
            for resource in message.resources
        ),
    )


def write_configs_described(
    message: pb.DescribeConfigsRequest, answer: messages.ConfigsDescribed
) -> pb.DescribeConfigsResponse:
    """The settings of each entry of the request."""
    response = pb.DescribeConfigsResponse()
    for resource, described in zip(message.resources, answer.topics, strict=True):
        row = response.results.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        write_error(row, described.refusal)
        for config in described.configs:
            row.configs.add(
                name=config.name, value=config.value, source=_SOURCES[config.source], default_value=config.default
            )
    return response


def read_described(row: pb.DescribeConfigsResult) -> list[TopicConfig]:
    """One topic's settings; a source that this release does not know counts as a default."""
    return [
        TopicConfig(
            config.name,
            config.value if config.HasField("value") else None,
            _READ_SOURCES.get(config.source, ConfigSource.DEFAULT),
            config.default_value,
        )
        for config in row.configs
    ]
