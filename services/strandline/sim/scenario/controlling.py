"""How a scenario talks to the controller: its production core, plus the hands of a story teller.

Invariant: what is done by hand (a leader placed, an ISR set) goes through the core's own transactions, so it bumps
the epochs, is published and reported like any decision of the controller's.
"""

from __future__ import annotations

from dataclasses import replace

from strandline.core.control.alter_partition import Attempts, alter_partitions
from strandline.core.control.controller import ControllerCore
from strandline.core.control.election import Elected, ElectionType
from strandline.core.control.events import ControllerEffect
from strandline.core.control.leadership import fence, install
from strandline.core.messages import AlterPartitionAnswer, AlterPartitionRequest, PartitionImage
from strandline.core.types import NodeId, TopicPartition


class StagedController(ControllerCore):
    """The production core; every method that is not inherited is a manual decision."""

    def place_leader(self, tp: TopicPartition, node_id: NodeId, *, unclean: bool) -> list[ControllerEffect]:
        """Elect this very node: from ISR or ELR, or unclean."""
        draft = self._draft()
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        install(draft, self._partition(tp), Elected(node_id, kind), "scenario")
        return self._commit(draft)

    def drop_leader(self, tp: TopicPartition) -> list[ControllerEffect]:
        """Leave the partition without a leader, in a new epoch."""
        draft = self._draft()
        draft.put_partition(replace(self._partition(tp), leader=None), cause="scenario", new_reign=True)
        return self._commit(draft)

    def put_isr(self, tp: TopicPartition, isr: tuple[NodeId, ...], elr: tuple[NodeId, ...]) -> list[ControllerEffect]:
        """Set the committed ISR and ELR, as earlier AlterPartitions may have left them."""
        draft = self._draft()
        draft.put_partition(replace(self._partition(tp), isr=isr, elr=elr), cause="scenario")
        return self._commit(draft)

    def alter_by_hand(self, request: AlterPartitionRequest) -> tuple[list[ControllerEffect], AlterPartitionAnswer]:
        """Decide a proposal that no node sent: every check but the one of the attempt's number."""
        draft = self._draft()
        answer = alter_partitions(draft, Attempts(), request)
        return self._commit(draft), answer

    def fence_now(self, node_id: NodeId) -> list[ControllerEffect]:
        """End a node's session."""
        draft = self._draft()
        self._sessions.end(node_id)
        fence(draft, [node_id], "scenario", {})
        return self._commit(draft)

    def session_lives(self, node_id: NodeId) -> bool:
        """Whether the node has a session."""
        return self._sessions.is_alive(node_id)

    def _partition(self, tp: TopicPartition) -> PartitionImage:
        found = self.state.partition(tp)
        assert found is not None, f"{tp} was created before"
        return found
