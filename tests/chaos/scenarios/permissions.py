"""Rules that are taken back and given again, and tokens that end, while nodes and controllers are killed: scenario 32.

What is promised is that a rule that is taken back counts within a second at every node that hears its controller. So
the second begins when each node that serves has heard it after the change was acknowledged, by its own
`metadata_age_ms`. A node that was away hears it before it leads, and has no time of its own.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, ClassVar, NamedTuple

import grpc
from faults.processes import Kill
from harness.facilities import ETCD
from harness.history_file import rows_of
from harness.load import EVERYBODY, STRICT, STRICT_PARTITIONS
from harness.run import Run
from harness.scenario import IPTABLES, NAMESPACES, Form, Scenario, Step
from harness.tokens import ALIAS, make_issuer, with_tokens
from running_cluster import CALL_S
from scenarios.active_controller import WHOLE_LOG

from strandline.cli.local.certificate_folder import add, authority_of, cluster_of
from strandline.client import Admin, Rule
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType
from strandline.rpc.permissions import CallerRole, Identity
from strandline.v1 import metadata_service_pb2 as pb
from strandline.v1.metadata_service_pb2_grpc import MetadataServiceStub
from strandline_sim.checks.history import Read, Send, SendOutcome

_WITHIN_S = 1.0
_LOOK_S = 0.02
_CHANGE_MS = 60_000
_ACKS_S = 10.0
"""The end of a controller's lease (scenario 17), and then of the session of a node that was killed with it."""
_BOTH, _LEADER, _CONTROLLER, _MOVE = "kill both", "kill a leader", "kill the controller", "leaders move"
_FAULTS = (_BOTH, _LEADER, _CONTROLLER, _MOVE)
GUESTS = ("client/guest", f"{ALIAS}:guest")
"""Each in a process of its own: guest0 with writer w0 and reader r0, guest1 with w1 and r1."""


class _Closed(NamedTuple):
    """A span of time in which nothing of a guest may be taken, and nothing given to it."""

    guest: int
    since_s: float
    until_s: float

    def holds(self, *times: float | None) -> bool:
        return all(at_s is not None and self.since_s < at_s < self.until_s for at_s in times)


class RevocationAndExpiry(Scenario):
    """Scenario 32, as the module describes it."""

    number, title, has_short_form = 32, "Revocation and expiry", True
    needs = (NAMESPACES, IPTABLES, ETCD)
    has_tls = True
    node_settings: ClassVar = {"authorization": "acl"}
    controller_settings: ClassVar = {**WHOLE_LOG, "authorization": "acl"}
    rounds = (40, 4)

    def __init__(self) -> None:
        self._closed: list[_Closed] = []

    def plan(self, draw: random.Random, form: Form) -> list[Step]:
        """Every fault as often, before, at or after the change; both guests, each by a denial and by a lost grant."""
        return [
            Step(
                what=_FAULTS[number % len(_FAULTS)],
                args={
                    "guest": (number + number // 4) % len(GUESTS),
                    "by_denial": number % 4 in (1, 2),
                    "after_s": draw.uniform(0.0, 1.0),
                    "held_s": draw.uniform(1.0, 3.0),
                    "partition": draw.randrange(STRICT_PARTITIONS),
                    "fault_after_s": draw.uniform(0.0, 1.0),
                    "away_s": draw.choice([0.0, draw.uniform(4.0, 6.0)]),
                },
            )
            for number in range(form.of(*self.rounds))
        ]

    async def prepare(self, run: Run) -> None:
        """Half of the load and one guest show tokens, the others certificates."""
        folder = run.cluster.certificates
        assert folder is not None
        add(folder, authority_of(folder), Identity(cluster_of(folder), CallerRole.CLIENT, "guest"), (), 1)
        issuers = {"token_issuers": make_issuer(folder)}
        run.cluster.node_settings |= issuers
        run.cluster.controller_settings |= issuers
        ca = str(run.cluster.client_tls()["tls_ca"])
        run.load.shown["cli1"] = with_tokens(folder, ca, "load")
        run.load.shown["guest0"] = {name: str(path) for name, path in run.cluster.client_tls("guest").items()}
        run.load.shown["guest1"] = with_tokens(folder, ca, "guest")

    async def ready(self, run: Run) -> None:
        """The load may do everything; guests may look at its topics, and read and write, until that is taken away."""
        self._admin = Admin(run.cluster.bootstrap, timeout_ms=_CHANGE_MS, **run.cluster.client_tls())
        await run.stack.enter_async_context(self._admin)
        every = (Permission.ALLOW, Operation.ALL, ResourceType.TOPIC, Pattern.LITERAL, "*")
        rules = [Rule(principal, *every) for principal in ("client/client", f"{ALIAS}:load")]
        may = (Operation.DESCRIBE, Operation.READ, Operation.WRITE)
        rules += [_allows(who, one, topic) for who in GUESTS for one in may for topic in run.load.topics]
        assert await self._admin.create_acls(rules) == [None] * len(rules)

    async def play(self, run: Run) -> None:
        """Round after round, each in a whole cluster in which the guests may write."""
        for n in range(len(GUESTS)):
            producers = {f"w{n}": {"topic": STRICT, "acks": -1, "pause_s": run.load.pause_s}}
            idle = {"seekers": [], "stale": None, "asks_ends": False}
            await run.load.start_worker(f"guest{n}", f"cli{n}", producers=producers, consumers=[f"r{n}"], **idle)
        for step in run.plan:
            for n in range(len(GUESTS)):
                await run.load.acked(2, clients=(f"w{n}",))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._take_and_give(run, step.args))
                tasks.create_task(_break(run, step))
            await run.in_sync()

    async def _take_and_give(self, run: Run, args: Mapping[str, Any]) -> None:
        await asyncio.sleep(args["after_s"])
        guest, add_them, remove_them = args["guest"], self._admin.create_acls, self._admin.delete_acls
        rule = _denies if args["by_denial"] else _allows
        take, give = (add_them, remove_them) if args["by_denial"] else (remove_them, add_them)
        rules = [rule(GUESTS[guest], one) for one in (Operation.READ, Operation.WRITE)]
        assert await take(rules) == [None] * len(rules)
        acked_s = time.monotonic()
        run.note(f"taken  from {GUESTS[guest]}: {', '.join(map(str, rules))}")
        heard_s = max(await asyncio.gather(*(_heard(run, node_id, acked_s) for node_id in run.cluster.nodes)))
        await run.sleep_until(heard_s + _WITHIN_S + args["held_s"])
        self._closed.append(_Closed(guest, heard_s + _WITHIN_S, time.monotonic()))
        assert await give(rules) == [None] * len(rules)
        run.note(f"given  back; the nodes had heard it {heard_s - acked_s:.2f} s after it was taken")

    async def after(self, run: Run) -> None:
        """V1 has judged that nothing that was refused is in the log; the rest is about time, and about tokens."""
        history = list(run.load.history())
        sends = {each.value: each for each in history if isinstance(each, Send)}
        reads = [each for each in history if isinstance(each, Read) and each.place.partition < STRICT_PARTITIONS]
        for closed in self._closed:
            own = [sends[value] for value in sends if value.client == f"w{closed.guest}"]
            taken = [send for send in own if send.outcome is SendOutcome.OK]
            late = [send.value for send in taken if closed.holds(send.invoked_s, send.completed_s)]
            run.check(not late, f"records of {GUESTS[closed.guest]} were taken without a grant: {late[:3]}")
            given = [each.value for each in reads if each.consumer == f"r{closed.guest}" and closed.holds(each.at_s)]
            late = [value for value in given if value in sends and closed.holds(sends[value].invoked_s)]
            run.check(not late, f"records were given to {GUESTS[closed.guest]} without a grant: {late[:3]}")
            refused = {who for at_s, who in _refused(run, f"guest{closed.guest}") if closed.holds(at_s)}
            run.counters["writers_refused"] += f"w{closed.guest}" in refused
            run.counters["readers_refused"] += f"r{closed.guest}" in refused
        wrong = [who for process in ("cli0", "cli1") for _, who in _refused(run, process)]
        run.check(not wrong, f"{len(wrong)} refusals of clients whose grants stay: {sorted(set(wrong))}")
        for process in ("cli1", "guest1"):
            run.counters[f"tokens_{process}"] += len([*_rows(run, process, b'["token"')])

    def demands(self, form: Form) -> Mapping[str, int]:
        """Each change was felt, each fault happened, and tokens ended all the time."""
        rounds = form.of(*self.rounds)
        refused = dict.fromkeys(("Kill", "writers_refused", "readers_refused"), rounds)
        tokens = dict.fromkeys(("tokens_cli1", "tokens_guest1"), rounds)
        return {**refused, **tokens, "elections": rounds // 2, "reigns": 1 + rounds // 2, "leaders_moved": rounds // 4}


def _allows(principal: str, operation: Operation, topic: str = STRICT) -> Rule:
    return Rule(principal, Permission.ALLOW, operation, ResourceType.TOPIC, Pattern.LITERAL, topic)


def _denies(principal: str, operation: Operation) -> Rule:
    return Rule(principal, Permission.DENY, operation, ResourceType.TOPIC, Pattern.PREFIXED, STRICT[:3])


def _rows(run: Run, process: str, beginning: bytes) -> Iterator[list[Any]]:
    return rows_of(run.directory / f"history-{process}.jsonl", beginning)


def _refused(run: Run, process: str) -> list[tuple[float, str]]:
    return [(at_s, who) for _, at_s, who in _rows(run, process, b'["refused"')]


async def _heard(run: Run, node_id: int, after_s: float) -> float:
    """When a node first heard its controller after this moment; this moment, if it does not serve."""
    while True:
        try:
            stub = MetadataServiceStub(run.probe.channel(node_id))
            answer = await stub.DescribeCluster(pb.DescribeClusterRequest(), timeout=CALL_S)
        except grpc.aio.AioRpcError:
            return after_s
        heard_s = time.monotonic() - answer.as_of.age_ms / 1000
        if heard_s > after_s:
            return heard_s
        await asyncio.sleep(_LOOK_S)


async def _break(run: Run, step: Step) -> None:
    await asyncio.sleep(step.args["fault_after_s"])
    if step.what == _MOVE:
        before = await run.leader_epochs()
        await run.prefer_leaders()
        run.counters["leaders_moved"] += await run.leader_epochs() != before
        return
    active, leader = await run.several.active(), await run.leader(step.args["partition"])
    faults = [*([Kill(active)] if step.what != _LEADER else []), *([Kill(leader)] if step.what != _CONTROLLER else [])]
    began_s = time.monotonic()
    run.expect_acks(step.what, since_s=began_s, within_s=_ACKS_S, clients=EVERYBODY)
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(run.fault(fault)) for fault in faults))
        if step.what != _LEADER:
            await run.taken_over(step.what, began_s, active)
        await run.sleep_until(began_s + step.args["away_s"])
