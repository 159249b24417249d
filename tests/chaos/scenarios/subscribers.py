"""Scenario 26: 1,000 subscribers at the nodes, every controller away for a minute, and new clients start."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping

import grpc
from faults.processes import Kill
from harness.facilities import ETCD
from harness.load import EVERYBODY
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario, Step
from running_cluster import until

from strandline.client import Consumer, Producer
from strandline.v1 import metadata_service_pb2 as pb
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub

_CLIENT_S = 20.0
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
"""As clients in processes of their own: a node takes no more than 100 calls of one connection at a time."""
_TOPIC = "late"
"""The topic of the new clients alone: the load judges what is in its own topics."""


class _Subscriber:
    """One subscription to all topics, which must neither end nor go back."""

    def __init__(self) -> None:
        self.position = (-1, -1)
        self.messages = 0
        self.wrong = ""

    async def run(self, address: str) -> None:
        """Until cancelled."""
        try:
            async with grpc.aio.insecure_channel(address, _OWN_CONNECTION) as channel:
                await self._follow(MetadataServiceStub(channel).Subscribe())
            self.wrong = self.wrong or "was ended by its node"
        except grpc.aio.AioRpcError as error:
            self.wrong = f"ended with {error.code().name}: {error.details()}"

    async def _follow(self, call: grpc.aio.StreamStreamCall[pb.SubscribeRequest, pb.SubscribeResponse]) -> None:
        await call.write(pb.SubscribeRequest(all_topics=True))
        async for answer in call:
            now = (answer.as_of.controller_epoch, answer.as_of.metadata_offset)
            if now < self.position:
                self.wrong = f"went back from {self.position} to {now}"
            self.position, self.messages = max(now, self.position), self.messages + 1


class SubscribersWithoutControllers(Scenario):
    """Scenario 26, as the module describes it."""

    number, title = 26, "Subscribers without controllers"
    needs = (NAMESPACES, IPTABLES, ETCD)
    subscribers, clients = (1_000, 200), (10, 3)

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """How many subscribe, and for how long no controller decides."""
        counts = {"subscribers": form.of(*self.subscribers), "clients": form.of(*self.clients)}
        return [Step(what="controllers away", args={**counts, "length_s": form.of(60.0, 10.0)})]

    async def play(self, run: Run) -> None:
        """They stay subscribed over the outage, hear what is decided after it, and new clients need no controller."""
        (step,) = run.plan
        await run.several.active()
        await run.probe.create_topic(_TOPIC, min_insync_replicas="2")
        nodes = _addresses(run)
        subscribers = [_Subscriber() for _ in range(step.args["subscribers"])]
        tasks = [asyncio.create_task(each.run(nodes[n % len(nodes)])) for n, each in enumerate(subscribers)]
        try:
            await until(lambda: _all_heard(subscribers, (0, 0)), "every subscriber has a snapshot")
            run.note(f"{len(subscribers)} subscribers have a snapshot")
            await _away(run, step)
            after = time.monotonic()
            await run.several.goes_on("controllers back", after)
            epoch = (await run.probe.metadata()).controller_epoch
            await until(lambda: _all_heard(subscribers, (epoch, 0)), "every subscriber hears of the next reign")
            run.measured["heard_of_the_next_reign_s"] = round(time.monotonic() - after, 2)
            wrong = [each.wrong for each in subscribers if each.wrong]
            run.check(not wrong, f"{len(wrong)} subscribers: {wrong[:3]}")
            run.counters["subscribers"] += len(subscribers) - len(wrong)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await run.in_sync()

    def demands(self, form: Form) -> Mapping[str, int]:
        """The subscriptions lasted, and clients started."""
        return {"Kill": 3, "subscribers": form.of(*self.subscribers), "clients_started": form.of(*self.clients)}


async def _all_heard(subscribers: list[_Subscriber], least: tuple[int, int]) -> bool:
    return all(each.position >= least or each.wrong for each in subscribers)


async def _away(run: Run, step: Step) -> None:
    """All three are killed; clients start at the nodes' addresses, produce with acks=all, and read it back."""
    began_s = time.monotonic()
    run.expect_acks("no controller runs", since_s=began_s, clients=EVERYBODY)
    faults = [Kill(name) for name in run.cluster.controllers]
    for fault in faults:
        await run.begin(fault)
    bootstrap = ",".join(_addresses(run))
    for number in range(step.args["clients"]):
        began_client_s = time.monotonic()
        async with asyncio.timeout(_CLIENT_S):
            await _start_a_client(run, bootstrap, number)
        took_s = time.monotonic() - began_client_s
        run.measured["new_client_max_s"] = max(round(took_s, 2), run.measured.get("new_client_max_s", 0.0))
        run.counters["clients_started"] += 1
    await run.acked_until(began_s + step.args["length_s"])
    await asyncio.gather(*(run.end(fault) for fault in faults))


def _addresses(run: Run) -> list[str]:
    return [address.client for n in run.cluster.nodes if (address := run.cluster.address(n)) is not None]


async def _start_a_client(run: Run, bootstrap: str, number: int) -> None:
    """A producer and a consumer that know the nodes alone: what the one produced with acks=all, the other reads."""
    value = b"new client %d" % number
    async with Producer(bootstrap, acks=-1) as producer:
        await (await producer.send(_TOPIC, value))
    async with Consumer(bootstrap, max_wait_ms=200) as consumer:
        await consumer.assign([_TOPIC])
        found: list[bytes | None] = []
        while value not in found:
            batches = await consumer.fetch_batches(timeout_ms=1_000)
            found += [record.value for batch in batches for record in batch.records]
