"""Decides the shape of a topic that holds coordinators' state, and when the controller may create one (G1).

Invariant: such a topic never has fewer replicas than the controller's setting asks for: created while too few nodes
live, it would have them for ever.
"""

from __future__ import annotations

from strandline.core.controller_messages import NewTopic
from strandline.core.controller_state import ControllerTimings
from strandline.core.coordinator.internal_topics import GROUP_STATE, TRANSACTION_STATE
from strandline.core.draft import Draft
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.feature_levels import GROUPS, TRANSACTIONS
from strandline.core.placement import Placement
from strandline.core.topic_configs import MIN_ISR, SEGMENT_BYTES

STATE_SEGMENT_BYTES = 1 << 20
"""Only whole segments below the log start are removed, so a sweep would free nothing of a log of one large segment."""
STATE_MIN_ISR = 2


def internal_topic(draft: Draft, timings: ControllerTimings, placement: Placement, new: NewTopic) -> NewTopic | Refusal:
    """The topic as it is created, or why it cannot be now."""
    if new.assignments or new.configs or new.num_partitions is not None or new.replication_factor is not None:
        message = f"topic '{new.name}' is internal: the controller shapes it; name no partitions, replicas or settings"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    what, level, partitions = _kind_of(new.name, timings)
    if draft.header.feature_level < level:
        return Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the cluster works at feature level {draft.header.feature_level}, and {what} need {level}; "
            "upgrade every node first",
        )
    factor = timings.internal_replication_factor
    if placement.active < factor:
        return Refusal(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{placement.active} nodes are alive, and internal.replication.factor is {factor}: topic '{new.name}' is "
            "created when as many live; start more nodes, or start the controller with a smaller factor",
        )
    configs = ((MIN_ISR, str(min(STATE_MIN_ISR, factor))), (SEGMENT_BYTES, str(STATE_SEGMENT_BYTES)))
    return new._replace(num_partitions=partitions, replication_factor=factor, configs=configs)


def _kind_of(name: str, timings: ControllerTimings) -> tuple[str, int, int]:
    """What a topic holds the state of, which feature level that needs, and how many partitions it has."""
    if name == GROUP_STATE:
        return "groups", GROUPS, timings.group_state_partitions
    assert name == TRANSACTION_STATE, f"{name} is no internal topic"
    return "transactions", TRANSACTIONS, timings.transaction_state_partitions
