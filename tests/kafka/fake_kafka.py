"""Brokers on loopback that answer by Kafka's protocol, read and written by kafka-python: a codec that is not ours."""

from __future__ import annotations

import asyncio
import importlib
import io
import struct
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

_MODULES = {
    2: ("consumer", "ListOffsets"),
    3: ("metadata", "Metadata"),
    17: ("sasl", "SaslHandshake"),
    18: ("metadata", "ApiVersions"),
    32: ("admin", "DescribeConfigs"),
    36: ("sasl", "SaslAuthenticate"),
    55: ("admin", "DescribeQuorum"),
    75: ("admin", "DescribeTopicPartitions"),
}
ORDERS = "11111111-2222-3333-4444-555555555555"


def message(key: int, kind: str) -> Any:
    """kafka-python's class of a request or of an answer."""
    module, name = _MODULES[key]
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python is going to give up.
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(importlib.import_module(f"kafka.protocol.{module}"), name + kind)


@dataclass
class Part:
    """What is true of one partition: ``leos`` by broker."""

    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    hw: int
    leos: dict[int, int]
    elr: list[int] = field(default_factory=list)
    start: int = 0


@dataclass
class FakeCluster:
    """Three brokers and their partitions; a test changes them while they are asked."""

    cluster_id: str = "fake-cluster"
    parts: dict[tuple[str, int], Part] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=lambda: {"orders": ORDERS})
    brokers: dict[int, int] = field(default_factory=dict)
    """Ports by number."""
    speaking: dict[int, asyncio.Event] = field(default_factory=dict)
    """A broker whose event is cleared reads and does not answer."""
    not_listed: set[int] = field(default_factory=set)
    """Brokers that the cluster does not show any more."""
    offered: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {2: (1, 11), 3: (0, 13), 18: (0, 4), 32: (1, 4), 55: (0, 2), 75: (0, 0)}
    )
    min_isr: dict[str, str] = field(default_factory=lambda: {"orders": "2"})
    quorum_hw: int | None = None
    """Of the metadata log; None: the user may not see it."""
    asked: list[tuple[int, str, Any]] = field(default_factory=list)
    at_once: Counter[int] = field(default_factory=Counter)
    most_at_once: int = 0
    before: Callable[[int, Any], None] = lambda node, request: None
    """Is called before a request is answered."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    takes_s: dict[str, float] = field(default_factory=dict)
    """How long a question is worked on, by its name."""
    login: Callable[[bytes], tuple[int, str, bytes]] | None = None
    """What SaslAuthenticate answers; None: there is no login."""

    @property
    def _answers(self) -> dict[str, Callable[[int, Any, Any], Any]]:
        return {
            "ApiVersions": self._api_versions,
            "SaslHandshake": self._sasl_handshake,
            "SaslAuthenticate": self._sasl_authenticate,
            "Metadata": self._metadata,
            "ListOffsets": self._list_offsets,
            "DescribeConfigs": self._describe_configs,
            "DescribeTopicPartitions": self._describe_topic_partitions,
            "DescribeQuorum": self._describe_quorum,
        }

    async def serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, version, correlation = struct.unpack(">hhi", frame[:8])
                request = message(key, "Request").decode(io.BytesIO(frame), version=version, header=True)
                self.at_once[node] += 1
                self.most_at_once = max(self.most_at_once, self.at_once[node])
                await self.speaking[node].wait()
                await asyncio.sleep(self.takes_s.get(_MODULES[key][1], 0.0))
                self.before(node, request)
                self.asked.append((node, _MODULES[key][1], request))
                content = self._encoded(node, request, (key, version, correlation))
                self.at_once[node] -= 1
                writer.write(struct.pack(">i", len(content)) + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _encoded(self, node: int, request: Any, header: tuple[int, int, int]) -> bytes:
        key, version, correlation = header
        answer = self._answers[_MODULES[key][1]](node, request, message(key, "Response"))
        answer.API_VERSION = version
        answer.with_header(correlation)
        return bytes(answer.encode(header=True))

    def _api_versions(self, node: int, request: Any, answer: Any) -> Any:
        offered = dict(self.offered) | ({17: (0, 1), 36: (0, 2)} if self.login else {})
        apis = [answer.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in offered.items()]
        return answer(error_code=0, api_keys=apis, throttle_time_ms=0)

    def _sasl_handshake(self, node: int, request: Any, answer: Any) -> Any:
        known = ["PLAIN", "SCRAM-SHA-256"]
        return answer(error_code=0 if request.mechanism in known else 33, mechanisms=known)

    def _sasl_authenticate(self, node: int, request: Any, answer: Any) -> Any:
        assert self.login is not None
        code, text, token = self.login(bytes(request.auth_bytes))
        return answer(error_code=code, error_message=text, auth_bytes=token, session_lifetime_ms=0)

    def _metadata(self, node: int, request: Any, answer: Any) -> Any:
        shown = {n: p for n, p in self.brokers.items() if n not in self.not_listed}
        brokers = [
            answer.MetadataResponseBroker(node_id=n, host="127.0.0.1", port=p, rack=None) for n, p in shown.items()
        ]
        wanted = None if request.topics is None else [one.name for one in request.topics]
        kind = answer.MetadataResponseTopic
        topics = [
            kind(
                error_code=0 if name in self.ids else 3, name=name, topic_id=self.ids.get(name, UUID(int=0)),
                partitions=self._partitions(kind.MetadataResponsePartition, name) if name in self.ids else [],
            )
            for name in (self.ids if wanted is None else wanted)
        ]  # fmt: skip
        return answer(throttle_time_ms=0, brokers=brokers, cluster_id=self.cluster_id, controller_id=1, topics=topics)

    def _list_offsets(self, node: int, request: Any, answer: Any) -> Any:
        topic = answer.ListOffsetsTopicResponse
        part = topic.ListOffsetsPartitionResponse

        def one(name: str, asked: Any) -> Any:
            at, answered = self.parts[name, asked.partition_index], partial(part, partition_index=asked.partition_index)
            if request.replica_id != -2 and at.leader != node:
                return answered(error_code=6, timestamp=-1, offset=-1, leader_epoch=-1)
            offset = at.start if asked.timestamp == -2 else at.leos[node] if request.replica_id == -2 else at.hw
            return answered(error_code=0, timestamp=-1, offset=offset, leader_epoch=at.leader_epoch)

        topics = [topic(name=t.name, partitions=[one(t.name, p) for p in t.partitions]) for t in request.topics]
        return answer(throttle_time_ms=0, topics=topics)

    def _describe_configs(self, node: int, request: Any, answer: Any) -> Any:
        result = answer.DescribeConfigsResult
        setting = partial(result.DescribeConfigsResourceResult, name="min.insync.replicas", config_source=5)
        asked = [one.resource_name for one in request.resources]
        known = {name: [setting(value=self.min_isr[name])] for name in asked if name in self.min_isr}
        results = [
            result(error_code=0 if n in known else 29, resource_type=2, resource_name=n, configs=known.get(n, []))
            for n in asked
        ]
        return answer(results=results)

    def _partitions(self, kind: Any, topic: str, *, has_elr: bool = False) -> list[Any]:
        """The partitions of a topic as either answer shows them."""
        return [
            kind(
                error_code=0, partition_index=index, leader_id=one.leader, leader_epoch=one.leader_epoch,
                replica_nodes=one.replicas, isr_nodes=one.isr,
                offline_replicas=[n for n in one.replicas if n in self.not_listed],
                **({"eligible_leader_replicas": one.elr} if has_elr else {}),
            )
            for (name, index), one in self.parts.items()
            if name == topic
        ]  # fmt: skip

    def _describe_topic_partitions(self, node: int, request: Any, answer: Any) -> Any:
        kind = answer.DescribeTopicPartitionsResponseTopic
        of = kind.DescribeTopicPartitionsResponsePartition
        topics = [
            kind(name=one.name, topic_id=self.ids[one.name], partitions=self._partitions(of, one.name, has_elr=True))
            for one in request.topics
        ]
        return answer(topics=topics, next_cursor=None)

    def _describe_quorum(self, node: int, request: Any, answer: Any) -> Any:
        if self.quorum_hw is None:
            return answer(error_code=31, topics=[])
        (asked,) = request.topics
        part = answer.TopicData.PartitionData(
            partition_index=0, error_code=0, leader_id=1, leader_epoch=1, high_watermark=self.quorum_hw,
            current_voters=[], observers=[],
        )  # fmt: skip
        return answer(error_code=0, topics=[answer.TopicData(topic_name=asked.topic_name, partitions=[part])])
