"""Calls by the names of their methods, each with a request that touches something."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from typing import Any

import grpc

from strandline import v1
from strandline.rpc.permissions import NEEDS
from strandline.rpc.status import refusal_of

DEADLINE_S = 10
HIDDEN = "hidden"

_PART = {"partitions": [{"partition": 0}]}
REQUESTS: dict[str, dict[str, Any]] = {
    "LeaderService/Produce": {"topic_data": [{"name": HIDDEN, "partition_data": [{"index": 0}]}]},
    "LeaderService/ProduceStream": {"topic_data": [{"name": HIDDEN, "partition_data": [{"index": 0}]}]},
    "LeaderService/Fetch": {"topics": [{"topic": HIDDEN, **_PART}]},
    "LeaderService/FetchStream": {"topics": [{"topic": HIDDEN, **_PART}]},
    "LeaderService/OffsetForLeaderEpoch": {"topics": [{"topic": HIDDEN, **_PART}]},
    "LeaderService/ListOffsets": {"topics": [{"name": HIDDEN, "partitions": [{"partition_index": 0}]}]},
    "LeaderService/DescribeProducers": {"topics": [{"topic": HIDDEN, "partitions": [0]}]},
    "LeaderService/DeleteRecords": {"topics": [{"name": HIDDEN, "partitions": [{"partition_index": 0}]}]},
    "LeaderService/DescribePartitions": {"topics": [{"topic": HIDDEN, "partitions": [0]}]},
    "FollowerService/Fetch": {"topics": [{"topic": HIDDEN, **_PART}]},
    "FollowerService/DescribeReplicas": {"topics": [{"topic": HIDDEN, "partitions": [0]}]},
    "GroupService/FindCoordinator": {"coordinator_keys": ["g"]},
    "GroupService/OffsetCommit": {"group_id": "g"},
    "GroupService/TxnOffsetCommit": {"group_id": "g", "transactional_id": "i"},
    "GroupService/OffsetFetch": {"groups": [{"group_id": "g"}]},
    "GroupService/ConsumerGroupHeartbeat": {"group_id": "g"},
    "GroupService/DescribeGroups": {"group_ids": ["g"]},
    "GroupService/OffsetDelete": {"group_id": "g"},
    "GroupService/DeleteGroups": {"groups_names": ["g"]},
    "TransactionService/InitProducerId": {"transactional_id": "i"},
    "TransactionService/EndTxn": {"transactional_id": "i"},
    "TransactionService/DescribeTransactions": {"transactional_ids": ["i"]},
    "ControllerService/GetMetadata": {"topics": [{"name": HIDDEN}]},
    "ControllerService/DescribeTopics": {"topics": [{"name": HIDDEN}]},
    "ControllerService/CreateTopics": {"topics": [{"name": "new"}]},
    "ControllerService/DeleteTopics": {"topics": [{"name": HIDDEN}]},
    "ControllerService/AlterTopicConfigs": {"topics": [{"name": HIDDEN}]},
    "ControllerService/IncrementalAlterConfigs": {"resources": [{"resource_type": 2, "resource_name": HIDDEN}]},
    "ControllerService/DescribeConfigs": {"resources": [{"resource_type": 2, "resource_name": HIDDEN}]},
    "ControllerService/CreatePartitions": {"topics": [{"name": HIDDEN, "count": 2}]},
    "MetadataService/Subscribe": {"all_topics": True},
}
"""Requests that touch something, by method; the others touch the cluster whatever they name."""


def _codes(message: Any) -> set[int]:
    """Every error code in an answer."""
    found: set[int] = set()
    for field, value in message.ListFields():
        if field.name == "error_code":
            found.add(value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for child in value if field.is_repeated else (value,):
                found |= _codes(child)
    return found


def _method(name: str) -> Any:
    service, _, method = name.partition("/")
    for module in pkgutil.iter_modules(v1.__path__):
        if module.name.endswith("_pb2"):
            described = importlib.import_module(f"strandline.v1.{module.name}").DESCRIPTOR.services_by_name
            if service in described:
                return described[service].methods_by_name[method]
    raise AssertionError(name)


async def outcome(channel: grpc.aio.Channel, name: str, fields: dict[str, Any] | None = None) -> tuple[set[int], Any]:
    """Error codes of a call, and its first answer; ``fields``: of its request, in place of those in `REQUESTS`."""
    described = _method(name)
    request = described.input_type._concrete_class(**REQUESTS.get(name, {}) if fields is None else fields)
    decode = described.output_type._concrete_class.FromString
    make = {
        (False, False): channel.unary_unary, (False, True): channel.unary_stream, (True, True): channel.stream_stream
    }[described.client_streaming, described.server_streaming]  # fmt: skip
    call = make(
        f"/strandline.v1.{name}", request_serializer=lambda one: one.SerializeToString(), response_deserializer=decode
    )
    try:
        if described.client_streaming:
            stream = call(timeout=DEADLINE_S)
            await stream.write(request)
            answer = await stream.read()
            stream.cancel()
        elif described.server_streaming:
            stream = call(request, timeout=DEADLINE_S)
            answer = await stream.read()
            stream.cancel()
        else:
            answer = await call(request, timeout=DEADLINE_S)
    except grpc.aio.AioRpcError as error:
        return {int(refusal_of(error).code)}, None
    return _codes(answer), answer


async def ruled(node: grpc.aio.Channel, controller: grpc.aio.Channel) -> dict[str, tuple[set[int], Any]]:
    """The outcome of each call of a cluster's processes that rules are about, by the name of its method."""
    found = {}
    for method, need in NEEDS.items():
        name = method.removeprefix("/strandline.v1.")
        if need.of and not name.startswith("AnalyticsService/"):
            channel = controller if name.startswith(("ControllerService/", "MetadataService/")) else node
            found[name] = await asyncio.wait_for(outcome(channel, name), DEADLINE_S)
    return found
