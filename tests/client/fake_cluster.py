"""A cluster in one process that does what a test scripts: a controller and nodes on real sockets, logs in memory.

All nodes share one log per partition, like perfect and instant replication; the only faults are those that a test
requests with `FakeNode.next_produce` and `next_fetch`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import grpc
from tests.client.fake_groups import FakeGroups
from tests.client.fake_transactions import FakeTransactions
from tests.core.core_builders import partition_image

from strandline import client
from strandline.core import types
from strandline.core.errors import ErrorCode, Outcome
from strandline.core.log.producers import ProducerLedger, SequenceVerdict
from strandline.core.messages import Endpoint, MetadataImage, NodeImage, TopicImage
from strandline.records.batch import check_batch, parse_header, split_batches, stamp
from strandline.records.codec import NewRecord, Record, decode_batch, encode_batch
from strandline.rpc.convert.errors import outcome_to_wire
from strandline.rpc.convert.metadata import write_image, write_node, write_topic, write_watch_answer
from strandline.v1 import (
    controller_service_pb2 as cpb,
    controller_service_pb2_grpc,
    follower_service_pb2 as fpb,
    follower_service_pb2_grpc,
    leader_service_pb2 as lpb,
    leader_service_pb2_grpc,
    partition_pb2 as ppb,
)

TOPIC = "t"
TOPIC_ID = "11111111-1111-1111-1111-111111111111"
T = TypeVar("T")


@dataclass
class FakeLog:
    """One partition's records, shared by every node."""

    batches: list[bytes] = field(default_factory=list)
    ledger: ProducerLedger = field(default_factory=ProducerLedger)
    leo: int = 0
    log_start: int = 0
    hw: int | None = None
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(producer id, first offset) that every answer names."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def high_watermark(self) -> int:
        return self.leo if self.hw is None else self.hw

    def append(self, payload: bytes, epoch: int) -> tuple[int | None, ErrorCode | None]:
        """Append a batch; returns its base offset, or the error."""
        header = parse_header(payload)
        check = self.ledger.check(header)
        if check.verdict is SequenceVerdict.DUPLICATE:
            return check.first.first_offset, None
        if check.verdict is SequenceVerdict.TOO_OLD:
            return None, ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if check.verdict is not SequenceVerdict.NEXT:
            return None, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        base = self.leo
        stamped = bytearray(payload)
        stamp(stamped, base, epoch)
        self.batches.append(bytes(stamped))
        self.ledger.observe(header, types.Offset(base))
        self.leo += header.record_count
        self.wake()
        return base, None

    def wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``, up to the HW."""
        taken = b""
        for batch in self.batches:
            header = parse_header(batch)
            if header.next_offset <= offset or header.next_offset > self.high_watermark:
                continue
            if taken and len(taken) + len(batch) > max_bytes:
                break
            taken += batch
        return taken

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_batch(batch)]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def truncate(self, offset: int) -> None:
        """Remove whole batches from ``offset`` on."""
        self.batches = [batch for batch in self.batches if parse_header(batch).next_offset <= offset]
        self.ledger = ProducerLedger()
        for batch in self.batches:
            header = parse_header(batch)
            self.ledger.observe(header, header.base_offset)
        self.leo = parse_header(self.batches[-1]).next_offset if self.batches else 0


@dataclass
class Refuse:
    """Answer with an error; ``after_append`` appends first, ``whole`` rejects the message instead of the row."""

    code: ErrorCode
    outcome: Outcome | None = Outcome.NOT_APPENDED
    after_append: bool = False
    hint: int | None = None
    hint_epoch: int | None = None
    """Leader epoch that goes with the hint; None: one more than the present one."""
    whole: bool = False


@dataclass
class BreakStream:
    """End the stream instead of answering; ``after_append`` appends first."""

    after_append: bool = True


@dataclass
class Hold:
    """Answer only after ``release`` is set; the records are appended at once."""

    release: asyncio.Event = field(default_factory=asyncio.Event)


Action = Refuse | BreakStream | Hold


class FakeNode(leader_service_pb2_grpc.LeaderServiceServicer, follower_service_pb2_grpc.FollowerServiceServicer):
    """A data node that leads the partitions the controller assigns, unless scripted otherwise."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.server: Any = None
        self.endpoint = Endpoint("127.0.0.1", 0)
        self.next_produce: deque[Action] = deque()
        self.next_fetch: deque[ppb.FetchPartitionResponse] = deque()
        self.produced: list[tuple[int, int, int, int]] = []
        self.signs_of_life = 0
        self.fetched: list[ppb.FetchPartition] = []
        self.isolation_levels: set[int] = set()
        self.follower_fetches = 0
        self.produce_streams = 0
        self.hangs = False
        self.hung_calls = 0
        self.list_offsets_refusals: deque[ErrorCode] = deque()
        self.list_offsets_levels: set[int] = set()
        self.delete_records_refusals: deque[ErrorCode] = deque()
        self.deletions: list[lpb.DeleteRecordsRequest] = []

    async def start(self) -> None:
        self.server = self.cluster.new_server(self)
        leader_service_pb2_grpc.add_LeaderServiceServicer_to_server(self, self.server)
        # Both services have a Fetch; the follower's is its own object.
        follower_service_pb2_grpc.add_FollowerServiceServicer_to_server(_FollowerFace(self), self.server)
        self.cluster.groups.add_to(self.server, self.node_id)
        self.cluster.transactions.add_to(self.server)
        port = self.server.add_insecure_port(f"127.0.0.1:{self.endpoint.port}")
        self.endpoint = Endpoint("127.0.0.1", port)
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            server, self.server = self.server, None
            await server.stop(None)

    def leads(self, tp: types.TopicPartition) -> bool:
        return self.cluster.leaders[tp][0] == self.node_id

    async def ProduceStream(self, requests: Any, context: Any) -> None:  # noqa: N802
        self.produce_streams += 1
        answers: set[asyncio.Task[None]] = set()
        writing = asyncio.Lock()
        try:
            async for request in requests:
                action = self.next_produce.popleft() if self.next_produce else None
                row, is_broken = self._produce(request, action)
                if is_broken:
                    return
                answer = lpb.ProduceStreamResponse(correlation_id=request.correlation_id, responses=[row])
                if isinstance(action, Refuse) and action.whole:
                    answer = lpb.ProduceStreamResponse(correlation_id=request.correlation_id)
                    _set_error(answer, action.code)
                if isinstance(action, Hold):
                    task = asyncio.create_task(_after(action.release, writing, context, answer))
                    answers.add(task)
                    continue
                async with writing:
                    await context.write(answer)
            await asyncio.gather(*answers)
        finally:
            for task in answers:
                task.cancel()

    def _produce(self, request: Any, action: Action | None) -> tuple[lpb.ProduceTopicResponse, bool]:
        (topic,) = request.topic_data
        (part,) = topic.partition_data
        tp = types.TopicPartition(topic.topic_id, part.index)
        (batch,) = split_batches(part.records)
        check_batch(batch.view)
        header = batch.header
        sent = header.producer or types.ProducerStamp(-1, -1, -1)
        self.produced.append((part.index, sent.producer_id, sent.base_sequence, header.record_count))
        row = lpb.ProducePartitionResponse(index=part.index)
        answer = lpb.ProduceTopicResponse(topic_id=topic.topic_id)
        if action is None and not self.leads(tp):
            action = Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        append = not isinstance(action, Refuse | BreakStream) or action.after_append
        base, error = (
            self.cluster.log(part.index).append(part.records, self.cluster.leaders[tp][1]) if append else (None, None)
        )
        if isinstance(action, BreakStream):
            return answer, True
        if isinstance(action, Refuse):
            _set_error(row, action.code, action.outcome)
            if action.hint is not None:
                row.current_leader.leader_id = action.hint
                present = self.cluster.leaders[tp][1]
                row.current_leader.leader_epoch = present + 1 if action.hint_epoch is None else action.hint_epoch
        elif error is not None:
            _set_error(
                row,
                error,
                Outcome.NOT_APPENDED if error is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER else Outcome.MAY_APPEAR,
            )
        else:
            assert base is not None
            row.base_offset = base
        answer.partition_responses.append(row)
        return answer, False

    async def Fetch(self, request: Any, context: Any) -> lpb.FetchResponse:  # noqa: N802
        response = lpb.FetchResponse()
        room_bytes = request.max_bytes
        for topic in request.topics:
            rows = response.responses.add(topic_id=topic.topic_id)
            for part in topic.partitions:
                row = await self.fetch_row(topic.topic_id, part, request.max_bytes)
                if room_bytes <= 0:
                    # Only the first partition that has any gets a batch that is larger than the answer may be.
                    row.records = b""
                room_bytes -= len(row.records)
                rows.partitions.append(row)
        return response

    async def FetchStream(self, requests: Any, context: Any) -> None:  # noqa: N802
        parked: dict[types.TopicPartition, asyncio.Task[None]] = {}
        writing = asyncio.Lock()
        try:
            async for request in requests:
                self.isolation_levels.add(request.isolation_level)
                self.signs_of_life += not request.topics and not request.forgotten_topics_data
                for topic in request.forgotten_topics_data:
                    for index in topic.partitions:
                        _cancel(parked.pop(types.TopicPartition(topic.topic_id, index), None))
                for topic in request.topics:
                    for part in topic.partitions:
                        tp = types.TopicPartition(topic.topic_id, part.partition)
                        _cancel(parked.pop(tp, None))
                        serving = self._serve(context, writing, parked, request, topic.topic_id, part)
                        parked[tp] = asyncio.create_task(serving)
        finally:
            for task in parked.values():
                task.cancel()

    async def _serve(
        self,
        context: Any,
        writing: asyncio.Lock,
        parked: dict[types.TopicPartition, asyncio.Task[None]],
        request: Any,
        topic_id: str,
        part: Any,
    ) -> None:
        row = await self.fetch_row(topic_id, part, request.max_bytes)
        # Only a wait may be cancelled: a write that is interrupted leaves the stream unable to write again.
        parked.pop(types.TopicPartition(topic_id, part.partition), None)
        answer = lpb.FetchStreamResponse(
            correlation_id=request.correlation_id,
            responses=[ppb.FetchTopicResponse(topic_id=topic_id, partitions=[row])],
        )
        async with writing:
            await context.write(answer)

    async def fetch_row(
        self, topic_id: str, part: Any, max_bytes: int, *, as_follower: bool = False
    ) -> ppb.FetchPartitionResponse:
        self.fetched.append(part)
        if self.next_fetch:
            return self.next_fetch.popleft()
        row = ppb.FetchPartitionResponse(partition_index=part.partition)
        if not as_follower and not self.leads(types.TopicPartition(topic_id, part.partition)):
            _set_error(row, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return row
        log = self.cluster.log(part.partition)
        if part.fetch_offset < log.log_start or part.fetch_offset > log.leo:
            _set_error(row, ErrorCode.OFFSET_OUT_OF_RANGE)
            return row
        while not (records := log.read(part.fetch_offset, max_bytes)):
            await log.news.wait()
        row.high_watermark, row.log_start_offset, row.records = log.high_watermark, log.log_start, records
        for producer_id, first_offset in log.aborted:
            row.aborted_transactions.add(producer_id=producer_id, first_offset=first_offset)
        return row

    async def ListOffsets(self, request: Any, context: Any) -> lpb.ListOffsetsResponse:  # noqa: N802
        response = lpb.ListOffsetsResponse()
        self.list_offsets_levels.add(request.isolation_level)
        for topic in request.topics:
            rows = response.topics.add(topic_id=topic.topic_id)
            for part in topic.partitions:
                row = rows.partitions.add(partition_index=part.partition_index)
                if self.list_offsets_refusals:
                    _set_error(row, self.list_offsets_refusals.popleft())
                    continue
                offset = self._offset_for(self.cluster.log(part.partition_index), part.timestamp)
                if offset is not None:
                    row.offset = offset
        return response

    def _offset_for(self, log: FakeLog, timestamp: int) -> int | None:
        if timestamp == -1:
            return log.high_watermark
        if timestamp == -2:
            return log.log_start
        return next((r.offset for r in log.records() if (r.timestamp_ms or 0) >= timestamp), None)

    async def DeleteRecords(self, request: Any, context: Any) -> lpb.DeleteRecordsResponse:  # noqa: N802
        self.deletions.append(request)
        response = lpb.DeleteRecordsResponse()
        for topic in request.topics:
            rows = response.topics.add(topic_id=topic.topic_id)
            for part in topic.partitions:
                row = rows.partitions.add(partition_index=part.partition_index)
                if not self.leads(types.TopicPartition(topic.topic_id, part.partition_index)):
                    _set_error(row, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                elif self.delete_records_refusals:
                    _set_error(row, self.delete_records_refusals.popleft())
                else:
                    row.low_watermark = part.offset
        return response

    async def DescribePartitions(self, request: Any, context: Any) -> lpb.DescribePartitionsResponse:  # noqa: N802
        response = lpb.DescribePartitionsResponse(node_id=self.node_id)
        topic = response.topics.add(topic=TOPIC, topic_id=TOPIC_ID)
        for tp, (leader, epoch) in self.cluster.leaders.items():
            row = topic.partitions.add(partition_index=tp.partition)
            if leader != self.node_id:
                _set_error(row, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            log = self.cluster.log(tp.partition)
            row.leader_epoch, row.log_end_offset, row.high_watermark = epoch, log.leo, log.high_watermark
            row.replicas.add(replica_id=1, log_end_offset=0, in_isr=True)
        return response


class _FollowerFace(follower_service_pb2_grpc.FollowerServiceServicer):
    def __init__(self, node: FakeNode) -> None:
        self.node = node

    async def Fetch(self, request: Any, context: Any) -> fpb.FollowerServiceFetchResponse:  # noqa: N802
        self.node.follower_fetches += 1
        response = fpb.FollowerServiceFetchResponse()
        for topic in request.topics:
            rows = response.responses.add(topic_id=topic.topic_id)
            for part in topic.partitions:
                try:
                    async with asyncio.timeout(request.max_wait_ms / 1000):
                        row = await self.node.fetch_row(topic.topic_id, part, request.max_bytes, as_follower=True)
                except TimeoutError:
                    row = ppb.FetchPartitionResponse(partition_index=part.partition, high_watermark=0)
                rows.partitions.append(row)
        return response

    async def DescribeReplicas(self, request: Any, context: Any) -> fpb.DescribeReplicasResponse:  # noqa: N802
        response = fpb.DescribeReplicasResponse(node_id=self.node.node_id)
        topic = response.topics.add(topic=TOPIC, topic_id=TOPIC_ID)
        topic.partitions.add(
            partition_index=0, log_end_offset=7, high_watermark=5, fetch_state=fpb.FETCH_STATE_FETCHING, leader_id=0
        )
        return response


class FakeController(controller_service_pb2_grpc.ControllerServiceServicer):
    """Returns the cluster's state and producer ids; everything else is scripted per test."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.watchers: set[asyncio.Queue[MetadataImage]] = set()
        self.next_producer_id = 1000
        self.ids_given = 0
        self.answers: dict[str, Any] = {}
        self.asked: list[Any] = []
        self.hangs = False
        self.hung_calls = 0

    async def WatchMetadata(self, request: Any, context: Any) -> None:  # noqa: N802
        queue: asyncio.Queue[MetadataImage] = asyncio.Queue()
        self.watchers.add(queue)
        try:
            await context.write(write_watch_answer(self.cluster.image(), None))
            while True:
                await context.write(write_watch_answer(await queue.get(), None))
        finally:
            self.watchers.discard(queue)

    async def GetMetadata(self, request: Any, context: Any) -> cpb.GetMetadataResponse:  # noqa: N802
        return cpb.GetMetadataResponse(metadata=write_image(self.cluster.image()))

    async def InitProducerId(self, request: Any, context: Any) -> cpb.InitProducerIdResponse:  # noqa: N802
        self.ids_given += 1
        self.next_producer_id += 1
        return cpb.InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)

    async def DescribeTopics(self, request: Any, context: Any) -> cpb.DescribeTopicsResponse:  # noqa: N802
        return cpb.DescribeTopicsResponse(
            topics=[cpb.DescribedTopic(topic=write_topic(topic)) for topic in self.cluster.image().topics]
        )

    async def ListNodes(self, request: Any, context: Any) -> cpb.ListNodesResponse:  # noqa: N802
        nodes = [cpb.ListedNode(node=write_node(node), directory_id="d") for node in self.cluster.image().nodes]
        return cpb.ListNodesResponse(cluster_id="c", nodes=nodes)


def _scripted(name: str) -> Callable[[FakeController, Any, Any], Awaitable[Any]]:
    async def answer(self: FakeController, request: Any, context: Any) -> Any:
        self.asked.append(request)
        return self.answers[name]

    return answer


for _name in (
    "CreateTopics", "DeleteTopics", "AlterTopicConfigs", "DescribeConfigs", "CreatePartitions", "ElectLeaders",
    "ShutdownNode", "UnregisterNode", "AlterPartitionReassignments", "ListPartitionReassignments", "DrainNode",
):  # fmt: skip
    setattr(FakeController, _name, _scripted(_name))


class _NoteCallers(grpc.aio.ServerInterceptor):
    """Notes the user agent of every call, by its method; a call to a node that hangs is never answered."""

    def __init__(self, noted: dict[str, set[str]], node: FakeNode | FakeController) -> None:
        self._noted = noted
        self._node = node

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        agent = dict(details.invocation_metadata).get("user-agent", "")
        self._noted.setdefault(details.method.rpartition("/")[2], set()).add(str(agent))
        if self._node.hangs:
            self._node.hung_calls += 1
            await asyncio.Event().wait()
        return await continuation(details)


class FakeCluster:
    """The state that controller and nodes share."""

    def __init__(self, node_count: int, partition_count: int) -> None:
        self.nodes = [FakeNode(self, node_id) for node_id in range(node_count)]
        self.controller = FakeController(self)
        self.leaders: dict[types.TopicPartition, tuple[int | None, int]] = {
            types.TopicPartition(TOPIC_ID, index): (0, 1) for index in range(partition_count)
        }
        self._logs = {index: FakeLog() for index in range(partition_count)}
        self.groups = FakeGroups(self)
        self.transactions = FakeTransactions(self)
        self.has_topic = True
        self.offset = 1
        self.controller_epoch = 1
        self.bootstrap = ""
        self.user_agents: dict[str, set[str]] = {}
        self.racks: dict[int, str] = {}
        self.out_of_sync: set[int] = set()
        self.topic_id = TOPIC_ID
        self._server: Any = None

    def new_server(self, node: FakeNode | FakeController) -> Any:
        """A server that notes who calls."""
        noting = _NoteCallers(self.user_agents, node)
        return grpc.aio.server(options=[("grpc.so_reuseport", 0)], interceptors=[noting])

    def log(self, partition: int = 0) -> FakeLog:
        return self._logs[partition]

    def append(self, tp: types.TopicPartition, payload: bytes) -> tuple[int | None, ErrorCode | None]:
        return self.log(tp.partition).append(payload, self.leaders[tp][1])

    def tp(self, partition: int = 0) -> types.TopicPartition:
        return types.TopicPartition(self.topic_id, partition)

    def image(self) -> MetadataImage:
        everybody = tuple(types.NodeId(node.node_id) for node in self.nodes)
        in_sync = tuple(one for one in everybody if one not in self.out_of_sync)
        partitions = tuple(
            partition_image(tp, replicas=everybody, isr=in_sync, leader=leader, epoch=epoch, version=epoch)
            for tp, (leader, epoch) in self.leaders.items()
        )
        topics = (TopicImage(name=TOPIC, topic_id=self.topic_id, partitions=partitions),) if self.has_topic else ()
        topics += (self.groups.image(),) if self.groups.has_topic else ()
        nodes = tuple(
            NodeImage(
                node_id=types.NodeId(node.node_id),
                node_epoch=types.NodeEpoch(1),
                client_endpoint=node.endpoint,
                fenced=False,
                rack=self.racks.get(node.node_id),
            )
            for node in self.nodes
        )
        return MetadataImage(
            cluster_id="c",
            controller_epoch=self.controller_epoch,
            metadata_offset=self.offset,
            is_snapshot=True,
            rules=types.Rules(),
            nodes=nodes,
            topics=topics,
        )

    def announce(self) -> None:
        """Send every watcher the current topics, as a change."""
        self.offset += 1
        image = replace(self.image(), is_snapshot=False)
        if not self.has_topic:
            image = replace(image, deleted_topic_ids=(self.topic_id,))
        for queue in self.controller.watchers:
            queue.put_nowait(image)

    def add_partition(self, leader: int | None = 0) -> int:
        """Add a partition to the topic and send it to every watcher; returns its index."""
        index = len(self._logs)
        self._logs[index] = FakeLog()
        self.leaders[self.tp(index)] = (leader, 1)
        self.announce()
        return index

    def delete_topic(self) -> None:
        self.has_topic = False
        self.announce()

    def recreate_topic(self) -> None:
        """Create another topic under the name of the deleted one."""
        self.topic_id = self.topic_id[:-1] + "2"
        self.leaders = {self.tp(index): (0, 1) for index in self._logs}
        self._logs = {index: FakeLog() for index in self._logs}
        self.has_topic = True
        self.announce()

    def move_leader(self, node_id: int | None, partition: int = 0, *, announce: bool = True) -> None:
        """Elect another leader, in the next epoch."""
        _, epoch = self.leaders[self.tp(partition)]
        self.leaders[self.tp(partition)] = (node_id, epoch + 1)
        if announce:
            self.announce()

    def hang(self) -> None:
        """Let no process answer a call any more; streams that are open send nothing."""
        for process in (*self.nodes, self.controller):
            process.hangs = True
        for node in self.nodes:
            node.next_produce.extend(Hold() for _ in range(100))

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()
        self._server = self.new_server(self.controller)
        controller_service_pb2_grpc.add_ControllerServiceServicer_to_server(self.controller, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.bootstrap = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        for node in self.nodes:
            await node.stop()
        await self._server.stop(None)


@asynccontextmanager
async def fake_cluster(nodes: int = 1, partitions: int = 1) -> AsyncIterator[FakeCluster]:
    """A running cluster with one topic, whose partitions are all led by node 0 in epoch 1."""
    cluster = FakeCluster(nodes, partitions)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


@asynccontextmanager
async def producing(
    nodes: int = 1, partitions: int = 1, **options: Any
) -> AsyncIterator[tuple[FakeCluster, client.Producer[Any, Any]]]:
    """A cluster, and a producer with these options."""
    async with fake_cluster(nodes, partitions) as cluster, client.Producer(cluster.bootstrap, **options) as producer:
        yield cluster, producer


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is state, not an event
            await asyncio.sleep(0.005)


def write(
    cluster: FakeCluster, *values: bytes | None, partition: int = 0, key: bytes | None = None, timestamp_ms: int = 1
) -> None:
    cluster.append(cluster.tp(partition), encode_batch([NewRecord(key, value, timestamp_ms) for value in values]))


async def in_thread(program: Callable[[], T]) -> T:
    """What a program without a loop returns; the cluster runs in ours meanwhile."""
    async with asyncio.timeout(30):
        return await asyncio.to_thread(program)


async def _after(release: asyncio.Event, writing: asyncio.Lock, context: Any, answer: Any) -> None:
    await release.wait()
    async with writing:
        await context.write(answer)


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()


def _set_error(row: Any, code: ErrorCode, outcome: Outcome | None = None) -> None:
    row.error_code = int(code)
    row.error_message = code.name
    if isinstance(row, lpb.ProducePartitionResponse):
        row.outcome = outcome_to_wire(outcome)
