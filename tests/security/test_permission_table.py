"""The permission table and the page that has it."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from strandline import v1
from strandline.rpc.permissions import ALWAYS, TABLE, CallerRole, Identity
from strandline.v1 import controller_service_pb2 as controller, leader_service_pb2 as leader

CLIENT, ADMIN, NODE_2 = (
    Identity("c1", role, name)
    for role, name in ((CallerRole.CLIENT, "x"), (CallerRole.ADMIN, "x"), (CallerRole.REPLICA, "2"))
)


CONTROLLER = Identity("c1", CallerRole.CONTROLLER, "controller")


def _services() -> list[ServiceDescriptor]:
    """Every service of the contract, and those that every server adds."""
    modules = [
        importlib.import_module(f"strandline.v1.{found.name}")
        for found in pkgutil.iter_modules(v1.__path__)
        if found.name.endswith("_pb2")
    ]
    files = [module.DESCRIPTOR for module in (*modules, health_pb2, reflection_pb2)]
    return [service for file in files for service in file.services_by_name.values()]


def _methods() -> set[str]:
    return {f"/{service.full_name}/{method.name}" for service in _services() for method in service.methods}


def test_the_walk_finds_the_contract() -> None:
    """The checked services are all six roles', the one that all processes share, and two of gRPC's."""
    assert {service.full_name for service in _services()} == {
        "strandline.v1.LeaderService",
        "strandline.v1.FollowerService",
        "strandline.v1.ControllerService",
        "strandline.v1.GroupService",
        "strandline.v1.TransactionService",
        "strandline.v1.AnalyticsService",
        "strandline.v1.MetadataService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


def test_the_table_names_every_method() -> None:
    """A method without an entry is rejected for every role, and fails here first."""
    assert _methods() - TABLE.keys() == set()


def test_the_table_names_no_method_of_ours_that_is_gone() -> None:
    """Every permission is for an existing method; gRPC's own services may be newer than the installed ones."""
    ours = {method for method in TABLE if method.startswith("/strandline.")}

    assert ours - _methods() == set()


def _may(caller: Identity, method: str, request: Any) -> bool:
    condition = TABLE[method].get(caller.role)
    return condition is not None and condition.holds(request, caller)


_AS_2 = {"replica_state": {"replica_id": 2, "replica_epoch": 7}}
_AS_3 = {"replica_state": {"replica_id": 3, "replica_epoch": 7}}
_STATE = {"name": "__group_state"}
_L, _C = "/strandline.v1.LeaderService/", "/strandline.v1.ControllerService/"


@pytest.mark.parametrize(
    ("method", "request_", "may"),
    [
        (_L + "Produce", leader.ProduceRequest(), {CLIENT, ADMIN}),
        (_L + "ProduceStream", leader.ProduceStreamRequest(), {CLIENT, ADMIN}),
        (_L + "Fetch", leader.FetchRequest(), {CLIENT, ADMIN}),
        (_L + "Fetch", leader.FetchRequest(**_AS_2), {NODE_2}),
        (_L + "Fetch", leader.FetchRequest(**_AS_3), set()),
        (_L + "Fetch", leader.FetchRequest(replica_state={"replica_epoch": 7}), set()),
        (_L + "FetchStream", leader.FetchStreamRequest(topics=[{"topic": "t"}]), {CLIENT, ADMIN}),
        (_L + "FetchStream", leader.FetchStreamRequest(topics=[{"topic": "t"}], **_AS_2), {NODE_2}),
        (_L + "FetchStream", leader.FetchStreamRequest(topics=[{"topic": "t"}], **_AS_3), set()),
        (_L + "FetchStream", leader.FetchStreamRequest(**_AS_3), set()),
        (_L + "FetchStream", leader.FetchStreamRequest(), {CLIENT, ADMIN, NODE_2}),
        (_L + "ListOffsets", leader.ListOffsetsRequest(), {CLIENT, ADMIN}),
        (_L + "ListOffsets", leader.ListOffsetsRequest(**_AS_3), set()),
        (_L + "FetchProducerSnapshot", leader.FetchProducerSnapshotRequest(**_AS_2), {NODE_2}),
        (_L + "FetchProducerSnapshot", leader.FetchProducerSnapshotRequest(**_AS_3), set()),
        (_L + "FetchProducerSnapshot", leader.FetchProducerSnapshotRequest(), set()),
        (_L + "WriteTxnMarkers", leader.WriteTxnMarkersRequest(), {NODE_2, ADMIN}),
        (_L + "DescribeProducers", leader.DescribeProducersRequest(), {CLIENT, ADMIN}),
        (_L + "DeleteRecords", leader.DeleteRecordsRequest(), {ADMIN}),
        (_L + "OffsetForLeaderEpoch", leader.OffsetForLeaderEpochRequest(**_AS_2), {NODE_2}),
        (_L + "OffsetForLeaderEpoch", leader.OffsetForLeaderEpochRequest(**_AS_3), set()),
        (_C + "RegisterNode", controller.RegisterNodeRequest(node_id=2), {NODE_2}),
        (_C + "RegisterNode", controller.RegisterNodeRequest(node_id=3), set()),
        (_C + "Heartbeat", controller.HeartbeatRequest(node_id=2), {NODE_2}),
        (_C + "Heartbeat", controller.HeartbeatRequest(node_id=3), set()),
        (_C + "AlterPartition", controller.AlterPartitionRequest(node_id=2), {NODE_2}),
        (_C + "AlterPartition", controller.AlterPartitionRequest(node_id=3), set()),
        (_C + "WatchMetadata", controller.WatchMetadataRequest(), {CLIENT, ADMIN}),
        (_C + "WatchMetadata", controller.WatchMetadataRequest(node_id=2, node_epoch=7), {NODE_2}),
        (_C + "WatchMetadata", controller.WatchMetadataRequest(node_id=3, node_epoch=7), set()),
        (_C + "WatchMetadata", controller.WatchMetadataRequest(node_epoch=7), set()),
        (_C + "GetMetadata", controller.GetMetadataRequest(), {CLIENT, ADMIN}),
        (_C + "ListNodes", controller.ListNodesRequest(), {CLIENT, ADMIN}),
        (_C + "DescribeTopics", controller.DescribeTopicsRequest(), {CLIENT, ADMIN}),
        (_C + "ShutdownNode", controller.ShutdownNodeRequest(node_id=2), {ADMIN, NODE_2}),
        (_C + "ShutdownNode", controller.ShutdownNodeRequest(node_id=3), {ADMIN}),
        (_C + "CreateTopics", controller.CreateTopicsRequest(), {ADMIN}),
        (_C + "CreateTopics", controller.CreateTopicsRequest(topics=[_STATE]), {ADMIN, NODE_2}),
        (_C + "CreateTopics", controller.CreateTopicsRequest(topics=[_STATE, {"name": "t"}]), {ADMIN}),
        (_C + "DeleteTopics", controller.DeleteTopicsRequest(), {ADMIN}),
        (_C + "AlterTopicConfigs", controller.AlterTopicConfigsRequest(), {ADMIN}),
        (_C + "IncrementalAlterConfigs", controller.IncrementalAlterConfigsRequest(), {ADMIN}),
        (_C + "DescribeConfigs", controller.DescribeConfigsRequest(), {CLIENT, ADMIN}),
        (_C + "CreatePartitions", controller.CreatePartitionsRequest(), {ADMIN}),
        (_C + "ElectLeaders", controller.ElectLeadersRequest(), {ADMIN}),
        (_C + "DescribeControllers", controller.DescribeControllersRequest(), {CLIENT, ADMIN}),
        (_C + "HandOver", controller.HandOverRequest(), {ADMIN}),
        (_C + "InitProducerId", controller.InitProducerIdRequest(), {CLIENT, ADMIN}),
    ],
)
def test_who_may_ask_what(method: str, request_: Any, may: set[Identity]) -> None:
    """Of a client, an administrator, node 2 and the controller exactly these may make the request."""
    assert {caller for caller in (CLIENT, ADMIN, NODE_2, CONTROLLER) if _may(caller, method, request_)} == may


def test_every_condition_can_be_asked_of_its_methods_requests() -> None:
    """A condition reads only fields that the requests of its methods have: an empty request does not break it."""
    inputs = {f"/{s.full_name}/{m.name}": m.input_type._concrete_class for s in _services() for m in s.methods}

    for method, grants in TABLE.items():
        for role, condition in grants.items():
            if condition is not ALWAYS:
                condition.holds(inputs[method](), Identity("c1", role, "2"))


# docs/SECURITY.md has every role of the code; `make docs` writes its permissions.


PAGE = Path(__file__).resolve().parents[2] / "docs" / "SECURITY.md"


def test_the_page_names_every_role() -> None:
    """The page lists all roles for certificates."""
    page = PAGE.read_text(encoding="utf-8")

    assert [role for role in CallerRole if f"| `{role}` |" not in page] == []
