"""Decides, event by event, who leads, at which epoch, with which committed ISR, and who may take part at all.

Invariant: every change is one transaction, and its `Commit` comes before every effect that reports it; epochs
never go back (I14), and nothing is served from a store that is older than what a node has seen (TR18).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from strandline.core.access_changes import alter_acls, alter_quotas, describe_acls, describe_quotas, mutation_refusal
from strandline.core.audit import MergedRefusals, changes
from strandline.core.control import events, leadership, messages, topics
from strandline.core.control.alter_partition import Attempts, alter_partitions, check_node_epoch
from strandline.core.control.draft import Draft
from strandline.core.control.leadership import elect_leaders, rebalance
from strandline.core.control.moves import alter_reassignments, drain, list_reassignments
from strandline.core.control.nodes import Sessions, register, unregister
from strandline.core.control.positions import Doubt, Objection, objection, unproven_claim, why_empty
from strandline.core.control.reassignment import Reassignments
from strandline.core.control.state import ClusterHeader, ClusterState, ControllerTimings, EpochSkips, latest
from strandline.core.control.step_parts import LeftOver, ReplicaReports, left_over
from strandline.core.control.topic_configs import allows_unclean, recovery_timeout_ms
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log.effects import Emit
from strandline.core.messages import (
    AlterPartitionAnswer,
    AlterPartitionRequest,
    Heartbeat,
    HeartbeatAnswer,
    NodeRegistered,
    PositionProof,
    RegisterNode,
    ReplicaLogsReported,
    ReportReplicaLogs,
    TopicImage,
)
from strandline.core.permissions import EVERYTHING, Acls, Caller, Permit, Tell
from strandline.core.positions import prove
from strandline.core.producer_ids import ProducerIds
from strandline.core.quotas import Meters, QuotaKey
from strandline.core.state_events import ClockSample, ControllerDecision
from strandline.core.types import NodeEpoch, NodeId, Rules

NODE_EPOCHS_SKIPPED = 1_000
PRODUCER_IDS_SKIPPED = 1_000_000
"""How many ids each reign skips, because a store that lost its tail would assign them again (C33)."""


class ControllerCore:
    """The controller of a cluster. `step` is the only entry point; ``state`` is what the store holds, or None."""

    def __init__(
        self,
        state: ClusterState | None,
        rules: Rules,
        timings: ControllerTimings,
        clock_sample: Callable[[Heartbeat, int], ClockSample | None] = lambda beat, now_ms: None,
    ) -> None:
        """``clock_sample`` says what is reported of a heartbeat's clock (`observe.clock_samples`)."""
        self._state = state
        self._rules = rules
        self._timings = timings
        self._sessions = Sessions(timings.session_timeout_ms, timings.heartbeat_interval_ms)
        self._attempts = Attempts()
        self._reports = ReplicaReports()
        self._clock_sample = clock_sample
        self._doubt = Doubt()
        self._skips = EpochSkips()
        self._producer_ids = ProducerIds()
        self._reassignments = Reassignments(timings.moves_per_node)
        self._acls = Acls()
        self._mutations = Meters(timings.quota_burst_ms)
        self._next_rebalance_ms = 0
        # What earlier steps left over, in the order in which later steps continue it.
        self._left_over = LeftOver()
        self._now_ms = 0
        self._too_old: Refusal | None = None
        self.unproven_claims = 0
        """How many requests claimed more than the store holds and had no valid proof of it (M72)."""
        self._handlers: dict[type[Any], Callable[[Any], list[events.ControllerEffect]]] = {
            events.ControllerStarted: self._start,
            events.ControllerTicked: self._tick,
            events.RequestArrived: self._ask,
            events.WatchArrived: self._watch,
            events.ConnectionRefused: self._connection_refused,
            events.DoorsOpened: self._doors_opened,
            events.StepContinued: self._continue,
        }
        self._answers: dict[type[Any], Callable[[Draft, Any, int], messages.ControllerAnswer]] = {
            RegisterNode: self._register,
            Heartbeat: self._heartbeat,
            AlterPartitionRequest: self._alter_partition,
            ReportReplicaLogs: self._take_reports,
            messages.CreateTopics: lambda draft, request, _: topics.create_topics(draft, self._timings, request),
            messages.DeleteTopics: lambda draft, request, _: topics.delete_topics(draft, request),
            messages.DescribeTopics: lambda draft, request, _: topics.describe_topics(draft, request),
            messages.AlterTopicConfigs: lambda draft, request, _: topics.alter_configs(draft, request),
            messages.DescribeConfigs: lambda draft, request, _: topics.describe_configs(draft, self._timings, request),
            messages.CreatePartitions: lambda draft, request, _: topics.create_partitions(
                draft, self._timings, request
            ),
            messages.ElectLeaders: lambda draft, request, _: elect_leaders(draft, request),
            messages.AllocateProducerIds: lambda draft, request, _: self._producer_ids.allocate(draft, request),
            messages.InitProducerId: lambda draft, request, _: self._producer_ids.give(draft, request),
            messages.ListNodes: self._list_nodes,
            messages.ShutdownNode: self._shut_down,
            messages.UnregisterNode: lambda draft, request, _: unregister(draft, self._sessions, request),
            messages.AlterPartitionReassignments: lambda draft, request, _: alter_reassignments(
                draft, self._reassignments, request
            ),
            messages.ListPartitionReassignments: lambda draft, request, now_ms: list_reassignments(
                draft, self._reassignments, request, now_ms
            ),
            messages.DrainNode: lambda draft, request, _: drain(draft, request),
            messages.GetMetadata: self._tell,
            messages.AlterAcls: lambda draft, request, _: alter_acls(draft, request),
            messages.DescribeAcls: lambda draft, request, _: describe_acls(draft, request),
            messages.AlterClientQuotas: lambda draft, request, _: alter_quotas(draft, request),
            messages.DescribeClientQuotas: lambda draft, request, _: describe_quotas(draft, request),
        }

    @property
    def state(self) -> ClusterState:
        """The durable state, as of the last step."""
        assert self._state is not None, "the controller has not started"
        return self._state

    @property
    def acls(self) -> Acls:
        """The rules of the durable state, compiled once for as long as none changes."""
        if self._acls.rules is not self.state.acls:
            self._acls = Acls(self.state.acls)
        return self._acls

    @property
    def serves(self) -> bool:
        """Whether requests are answered: not from a store that a node's word has shown to be too old (TR18)."""
        return self._too_old is None

    def step(self, event: events.ControllerEvent) -> list[events.ControllerEffect]:
        """Handle one event; returns the effects in the order in which they must be performed."""
        self._now_ms = event.now_ms
        return self._handlers[type(event)](event)

    @property
    def purgatory_full(self) -> bool:
        """Always False: the controller parks no requests."""
        return False

    def _draft(self, caller: Caller | None = None, tell: Tell = lambda _: None) -> Draft:
        at_most = self._timings.partitions_per_step
        permit = EVERYTHING if caller is None else Permit(caller, self.acls, tell)
        return Draft(self.state, self._reports, self._doubt, self._skips, at_most, permit)

    def _commit(self, draft: Draft, *, settles: bool = True, is_settled: bool = False) -> list[events.ControllerEffect]:
        """``settles``: whether reassignments may end in this step's transaction; otherwise they do in the next one.
        ``is_settled``: what may end or start has done so, and nothing has changed since."""
        if settles and not is_settled:
            self._reassignments.settle(draft)
        self._state, effects = draft.finish()
        for effect in effects:
            if isinstance(effect, events.Commit):
                changed = effect.transaction.partitions
                self._skips.follow(changed, {each.tp: draft.base.partition(each.tp) for each in changed})
                self._reports.follow(changed, self._now_ms)
                self._reassignments.follow(effect.transaction, draft.base, self._now_ms)
                for topic_id in effect.transaction.deleted_topic_ids:
                    self._reports.forget_topic(topic_id)
                    self._skips.forget(draft.base.topics[topic_id])
        self._left_over.update(draft.left_over)
        goes_on = self._left_over or (not settles and any(each.original for each in draft.changed()))
        return [*effects, events.ContinueStep()] if goes_on else effects

    def _continue(self, event: events.StepContinued) -> list[events.ControllerEffect]:
        if self._too_old is not None:
            return []
        draft = self._draft()
        self._go_on(draft)
        return self._commit(draft)

    def _go_on(self, draft: Draft) -> None:
        if self._left_over:
            leadership.go_on(draft, self._left_over)

    def _start(self, event: events.ControllerStarted) -> list[events.ControllerEffect]:
        """Begin a reign: the next controller epoch, and one full session for every node that had one (M59).

        Numbers that only this store gives are skipped, in case it gave some that it no longer knows of (C33).
        """
        if self._state is None:
            self._state = ClusterState(header=ClusterHeader(cluster_id=event.new_cluster_id, rules=self._rules))
        self._reports.follow(self.state.partitions(), event.now_ms)
        # The previous reign may have ended between two parts of a step (C67b).
        self._left_over = left_over(self.state)
        self._reassignments.begin(self.state)
        draft = self._draft()
        before = draft.header
        is_first = before.controller_epoch == 0
        draft.header = replace(
            before,
            controller_epoch=before.controller_epoch + 1,
            secret=before.secret or event.new_secret,
            next_node_epoch=before.next_node_epoch + (0 if is_first else NODE_EPOCHS_SKIPPED),
            next_producer_id=before.next_producer_id + (0 if is_first else PRODUCER_IDS_SKIPPED),
        )
        draft.begin_reign(event.new_reign_id)
        unfenced = [record.image.node_id for record in draft.nodes() if not record.image.fenced]
        for node_id in unfenced:
            self._sessions.grant(node_id, event.now_ms)
        self._sessions.begin(event.now_ms)
        self._doubt.begin(unfenced, first_node_epoch=NodeEpoch(draft.header.next_node_epoch), is_first=is_first)
        self._next_rebalance_ms = event.now_ms + self._timings.leader_imbalance_check_interval_ms
        return self._commit(draft)

    def _tick(self, event: events.ControllerTicked) -> list[events.ControllerEffect]:
        if self._too_old is not None:
            # A store that is not served from is not written to either: nothing may bring it forward.
            return []
        now_ms = event.now_ms
        draft = self._draft()
        due = self._sessions.tick(now_ms)
        if self._sessions.first_is_over(now_ms):
            self._doubt.end()
        held = leadership.held_back(draft, due.keys(), self._sessions.silent(now_ms))
        ended = {node_id: last_ms for node_id, last_ms in due.items() if node_id not in held}
        for node_id in ended:
            self._sessions.end(node_id)
        stopped = [n for n in ended if (record := draft.node(n)) and record.image.shutting_down]
        self._fence(draft, [n for n in ended if n not in stopped], "session_timeout", ended)
        self._fence(draft, stopped, "controlled_shutdown", ended)
        self._end_waits(draft, now_ms)
        self._go_on(draft)
        if self._timings.auto_leader_rebalance and now_ms >= self._next_rebalance_ms:
            self._next_rebalance_ms = now_ms + self._timings.leader_imbalance_check_interval_ms
            # Last, so that leadership does not return to a node that this very tick fences.
            rebalance(draft, self._timings.preferred_elections_per_check)
        return self._commit(draft)

    def _fence(self, draft: Draft, node_ids: list[NodeId], cause: str, last_ms: dict[NodeId, int | None]) -> None:
        """Fence nodes; elections that waited for their word do not wait any longer."""
        leadership.fence(draft, node_ids, cause, last_ms)
        for node_id in node_ids:
            self._hear(draft, node_id)

    def _hear(self, draft: Draft, node_id: NodeId) -> None:
        """Hold the elections that waited for a node which has now been heard, or no longer can be (C37)."""
        if self._doubt.heard(node_id):
            leadership.elect_leaderless(draft, node_id)

    def _doors_opened(self, event: events.DoorsOpened) -> list[events.ControllerEffect]:
        self._sessions.resume(event.now_ms, event.closed_ms)
        return []

    def _end_waits(self, draft: Draft, now_ms: int) -> None:
        """Elect without the missing reports where the operator has limited the wait for them (M65)."""
        for tp, since_ms in self._reports.waiting().items():
            partition = draft.partition(tp)
            limit_ms = self._wait_limit_ms(draft.configs(tp.topic_id))
            if partition is not None and limit_ms is not None and now_ms - since_ms >= limit_ms:
                self._reports.end_wait(tp)
                leadership.elect_if_possible(draft, partition, cause=leadership.RECOVERY_TIMED_OUT)

    def _wait_limit_ms(self, configs: tuple[tuple[str, str], ...]) -> int | None:
        limit_ms = recovery_timeout_ms(configs, self._timings.unclean_recovery_timeout_ms)
        if not allows_unclean(configs):
            return limit_ms
        # Availability first: the wait for a live node that reports nothing is no longer than for a silent one.
        session_ms = self._timings.session_timeout_ms
        return session_ms if limit_ms is None else min(limit_ms, session_ms)

    def _connection_refused(self, event: events.ConnectionRefused) -> list[events.ControllerEffect]:
        if self._too_old is not None:
            return []
        draft = self._draft()
        gone: dict[NodeId, int | None] = {}
        for node_id, node_epoch in event.nodes:
            record = draft.node(node_id)
            # The report is about one incarnation; a newer one has its own session.
            if record is not None and record.image.node_epoch == node_epoch and not record.image.fenced:
                gone[node_id] = self._sessions.last_heartbeat_ms(node_id)
                self._sessions.end(node_id)
        # Not held back as silent nodes are (M64): a refused connection shows that the process is gone.
        self._fence(draft, list(gone), "connection_refused", gone)
        return self._commit(draft)

    def _ask(self, event: events.RequestArrived) -> list[events.ControllerEffect]:
        if refused := self._object(event.request_id, event.request):
            return refused
        refusal = (
            self._other_cluster(event.request)
            or self._unproven_claim(event.request)
            or topics.bad_request_id(event.request)
            or self._doubt.refusal(event.request)
            or mutation_refusal(self._mutations, self.state.quotas, event)
        )
        if refusal is not None:
            return [events.RefuseCall(event.request_id, refusal)]
        denials = MergedRefusals()
        draft = self._draft(event.caller, denials.take)
        answer = self._answers[type(event.request)](draft, event.request, event.now_ms)
        # A leader is answered with the ISR that it proposed, in the epoch of exactly that change.
        effects = self._commit(
            draft,
            settles=not isinstance(answer, AlterPartitionAnswer),
            is_settled=isinstance(answer, messages.PartitionsReassigned),
        )
        effects += self._audit(event, draft, denials, effects)
        if event.principal is not None and self._mutations.quotas:
            # Charged afterwards: each request is served whole, and its debt refuses the next ones (C103, C104).
            mutated = abs(self.state.partition_count - draft.base.partition_count)
            self._mutations.take(event.principal, QuotaKey.CONTROLLER_MUTATION_RATE, mutated, event.now_ms)
        if isinstance(answer, AlterPartitionAnswer) and isinstance(event.request, AlterPartitionRequest):
            answer = self._with_position(answer, event.request)
        elif isinstance(answer, NodeRegistered) and isinstance(event.request, RegisterNode):
            answer = self._with_registered_position(answer, event.request)
        return [*effects, events.Answer(event.request_id, answer)]

    def _audit(
        self, event: events.RequestArrived, draft: Draft, denials: MergedRefusals, done: list[events.ControllerEffect]
    ) -> list[events.ControllerEffect]:
        """Emit audit events of what the caller was refused and what it changed (C109)."""
        found = denials.drain()
        for effect in done:
            if isinstance(effect, events.Commit) and event.caller is not None:
                found += changes(event.request, draft.permit, draft.base, self.state, effect.transaction)
        return [Emit(None, each) for each in found]

    def _object(
        self, request_id: int, request: messages.ControllerRequest | messages.WatchMetadata
    ) -> list[events.ControllerEffect]:
        """Refuse what cannot be served from this store, and stop serving from it if that is proven (C35)."""
        if self._too_old is not None:
            return [events.RefuseCall(request_id, self._too_old)]
        found = self._objection(request)
        if found is None:
            return []
        if not found.stops_serving:
            self.unproven_claims += found.refusal.code is ErrorCode.NOT_CONTROLLER
            return [events.RefuseCall(request_id, found.refusal)]
        # Never lifted by this process: every epoch that such a store gives may have been given before (I14).
        self._too_old = found.refusal
        return [events.StopServing(found.refusal.message), events.RefuseCall(request_id, found.refusal)]

    def _objection(self, request: messages.ControllerRequest | messages.WatchMetadata) -> Objection | None:
        if not isinstance(request, RegisterNode | Heartbeat | AlterPartitionRequest | messages.WatchMetadata):
            return None
        if request.node_id is None:
            return None
        if request.cluster_id in (None, self.state.header.cluster_id):
            return objection(self.state, request)
        if (why := why_empty(self.state, request.node_id, request.cluster_id)) is None:
            return None
        return Objection(Refusal(ErrorCode.NOT_CONTROLLER, why), stops_serving=True)

    def _unproven_claim(self, request: messages.ControllerRequest) -> Refusal | None:
        if not isinstance(request, RegisterNode | Heartbeat):
            return None
        refusal = unproven_claim(self.state, request)
        self.unproven_claims += refusal is not None
        return refusal

    def _with_position(self, answer: AlterPartitionAnswer, request: AlterPartitionRequest) -> AlterPartitionAnswer:
        """A leader acts on this answer before the metadata reaches it, so it gets the position that it is of (C34).

        One that was refused gets none: it proves nothing of who it is, and a proof is for the process it names (M72).
        """
        if all(decision.refusal is not None for decision in answer.partitions):
            return answer
        return replace(answer, position=self._position_for(request.node_id, request.node_epoch))

    def _with_registered_position(self, answer: NodeRegistered, request: RegisterNode) -> NodeRegistered:
        """A process drops its directory's unclean mark at this answer, so it must show a store that forgot it (C34)."""
        if answer.node_epoch is None:
            return answer
        return replace(answer, position=self._position_for(request.node_id, answer.node_epoch))

    def _position_for(self, node_id: NodeId, node_epoch: NodeEpoch) -> PositionProof:
        """The present position, and the proof that this process was sent it."""
        header, reign = self.state.header, latest(self.state.reigns)
        assert reign is not None, "a reign begins before anything is answered"
        return prove(
            header.secret,
            node_id=node_id,
            node_epoch=node_epoch,
            controller_epoch=header.controller_epoch,
            metadata_offset=header.metadata_offset,
            reign_id=reign.reign_id,
        )

    def _other_cluster(self, request: messages.ControllerRequest | messages.WatchMetadata) -> Refusal | None:
        ours = self.state.header.cluster_id
        if request.cluster_id is None or request.cluster_id == ours:
            return None
        return Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"cluster_id '{request.cluster_id}' is not this cluster's '{ours}'; connect to the cluster it belongs to",
            field="cluster_id",
        )

    def _register(self, draft: Draft, request: RegisterNode, now_ms: int) -> NodeRegistered:
        answer = register(draft, self._sessions, request)
        if answer.refusal is None:
            self._sessions.grant(request.node_id, now_ms)
            self._doubt.witnessed(request)
            self._hear(draft, request.node_id)
        return answer

    def _heartbeat(self, draft: Draft, request: Heartbeat, now_ms: int) -> HeartbeatAnswer:
        refusal = check_node_epoch(draft, request.node_id, request.node_epoch)
        if refusal is not None:
            return self._heartbeat_answer(draft, request, refusal)
        self._sessions.heard(request.node_id, now_ms, request.metadata_offset)
        self._doubt.witnessed(request)
        self._hear(draft, request.node_id)
        if (sample := self._clock_sample(request, now_ms)) is not None:
            draft.emit(None, sample)
        leadership.note_disk(draft, request.node_id, nearly_full=request.disk_nearly_full)
        record = draft.node(request.node_id)
        assert record is not None
        if request.want_shut_down:
            leadership.begin_shutdown(draft, request.node_id)
        elif request.want_fence:
            self._fence(draft, [request.node_id], "requested", {request.node_id: now_ms})
        # Not while it shuts down: a heartbeat that was delayed on its way must not make it electable again.
        elif record.image.fenced and not record.image.shutting_down:
            leadership.unfence(draft, request.node_id)
        if _leads_nothing_and_stops(draft, request.node_id):
            self._fence(draft, [request.node_id], "controlled_shutdown", {request.node_id: now_ms})
        return self._heartbeat_answer(draft, request, None)

    def _heartbeat_answer(self, draft: Draft, request: Heartbeat, refusal: Refusal | None) -> HeartbeatAnswer:
        record = draft.node(request.node_id)
        return HeartbeatAnswer(
            refusal=refusal,
            controller_epoch=draft.header.controller_epoch,
            # Compared with the state before this step, because the node cannot have been sent what this step changes.
            is_caught_up=request.metadata_offset >= draft.base.header.metadata_offset,
            is_fenced=record is None or record.image.fenced,
            should_shut_down=refusal is None and _leads_nothing_and_stops(draft, request.node_id),
            session_timeout_ms=self._timings.session_timeout_ms,
            heartbeat_interval_ms=self._timings.heartbeat_interval_ms,
        )

    def _shut_down(self, draft: Draft, request: messages.ShutdownNode, _: int) -> messages.NodeShutdownBegun:
        record = draft.node(request.node_id)
        if record is None:
            unknown = f"node {request.node_id} is not registered; `strandline node list` shows those that are"
            return messages.NodeShutdownBegun(refusal=Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, unknown))
        refusal = check_node_epoch(
            draft, request.node_id, request.node_epoch or record.image.node_epoch, by_itself=False
        )
        if refusal is not None:
            return messages.NodeShutdownBegun(refusal=refusal)
        leadership.begin_shutdown(draft, request.node_id)
        left = tuple(p.tp for p in draft.partitions() if p.leader == request.node_id)
        return messages.NodeShutdownBegun(remaining=left)

    def _list_nodes(self, draft: Draft, _: messages.ListNodes, now_ms: int) -> messages.NodesListed:
        nodes = []
        for record in draft.nodes():
            heard_ms = self._sessions.last_heartbeat_ms(record.image.node_id)
            listed = messages.ListedNode(
                node=record.image,
                directory_id=record.directory_id,
                feature_min=record.feature_min,
                feature_max=record.feature_max,
                last_heartbeat_age_ms=None if heard_ms is None else now_ms - heard_ms,
                metadata_offset=self._sessions.metadata_offset(record.image.node_id),
            )
            nodes.append(listed)
        header = draft.header
        return messages.NodesListed(
            cluster_id=header.cluster_id, controller_epoch=header.controller_epoch, nodes=tuple(nodes)
        )

    def _take_reports(self, draft: Draft, request: ReportReplicaLogs, _: int) -> ReplicaLogsReported:
        refusal = check_node_epoch(draft, request.node_id, request.node_epoch)
        if refusal is None:
            leadership.take_reports(draft, self._reports, request)
        return ReplicaLogsReported(refusal=refusal)

    def _alter_partition(self, draft: Draft, request: AlterPartitionRequest, _: int) -> AlterPartitionAnswer:
        answer = alter_partitions(draft, self._attempts, request)
        for decision in answer.partitions:
            if decision.refusal is not None:
                code = decision.refusal.code.name
                known = draft.partition(decision.tp)
                refused = ControllerDecision("alter_partition", live_set=(), fenced_set=(), outcome=code)
                if known is not None:
                    refused = refused._replace(old_isr=known.isr, elr=known.elr)
                draft.emit(decision.tp, refused)
        return answer

    def _tell(self, draft: Draft, request: messages.GetMetadata, _: int) -> messages.MetadataListed:
        snapshot = draft.base.snapshot().for_clients()
        if not request.topics:
            seen = tuple(topic for topic in snapshot.topics if draft.sees(topic.name))
            return messages.MetadataListed(image=replace(snapshot, topics=seen))
        found = (topic for ref in request.topics if isinstance(topic := draft.topic(ref), TopicImage))
        # By id: a topic is as large as its partitions are many, and a request may name it 100,000 times.
        once = {topic.topic_id: topic for topic in found}
        return messages.MetadataListed(image=replace(snapshot, topics=tuple(once.values())))

    def _watch(self, event: events.WatchArrived) -> list[events.ControllerEffect]:
        request = event.request
        if refused := self._object(event.request_id, request):
            return refused
        refusal = self._other_cluster(request) or self._check_watcher(request)
        if refusal is not None:
            return [events.RefuseCall(event.request_id, refusal)]
        whole = events.Publish(self.state.snapshot(), self.state.header.secret)
        position = whole.position_for(request.node_id, request.node_epoch)
        sent = whole.image.for_clients() if request.node_id is None else whole.image
        # Addressed to one process: late metadata must not make the next one lead in an epoch that has ended (TR15).
        snapshot = replace(sent, to_node_epoch=request.node_epoch, position=position)
        return [events.OpenWatch(event.request_id, snapshot, request.node_id, request.node_epoch)]

    def _check_watcher(self, request: messages.WatchMetadata) -> Refusal | None:
        if request.node_id is None and request.node_epoch is None:
            return None
        if request.node_id is None or request.node_epoch is None:
            return Refusal(
                ErrorCode.INVALID_REQUEST, "node_id and node_epoch go together; give both or, as a client, none"
            )
        if request.cluster_id is None:
            return Refusal(ErrorCode.INVALID_REQUEST, "cluster_id is absent; a node must give it")
        return check_node_epoch(self._draft(), request.node_id, request.node_epoch)

    def __repr__(self) -> str:
        header = self.state.header
        return (
            f"<Controller epoch={header.controller_epoch} offset={header.metadata_offset} "
            f"nodes={len(self.state.nodes)} topics={len(self.state.topics)}>"
        )


def _leads_nothing_and_stops(draft: Draft, node_id: NodeId) -> bool:
    record = draft.node(node_id)
    if record is None or not record.image.shutting_down:
        return False
    # Removing its replicas can take several steps; the partitions that it leads come first.
    return not any(partition.leader == node_id or node_id in partition.isr for partition in draft.partitions())
