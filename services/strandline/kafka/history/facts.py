"""What one record of the metadata log changed, with what held before it."""

from __future__ import annotations

from typing import NamedTuple

from strandline.core.types import NodeId
from strandline.kafka.history.state import Partition


class Created(NamedTuple):
    """A partition begins."""

    partition: Partition
    min_isr: int | None
    eligible: tuple[NodeId, ...]


class Changed(NamedTuple):
    """A partition is at its next epoch."""

    before: Partition
    after: Partition
    names_leader: bool
    """Whether the record names a leader: then the leader epoch rose, also if it is the same."""
    names_replicas: bool
    """Whether it says where the partition is placed, or is going to be."""
    min_isr: int | None
    eligible: tuple[NodeId, ...]
    """ISR and ELR before it, as far as they were alive."""


class Restated(NamedTuple):
    """A partition's state is another one without an epoch of its own: its ELR was cleared."""

    partition: Partition
    min_isr: int | None


class Configured(NamedTuple):
    """Another minimum holds for a partition."""

    partition: Partition
    min_isr: int | None


class Deleted(NamedTuple):
    """A partition is gone with its topic."""

    partition: Partition
    min_isr: int | None
    topic: str | None


class Registered(NamedTuple):
    """A process of a broker registered."""

    broker_id: NodeId
    rack: str | None
    is_first: bool
    is_fast_restart: bool
    """Nobody had fenced the process before it, and it had not been stopped in order."""


class Fenced(NamedTuple):
    """A broker is fenced."""

    broker_id: NodeId
    rack: str | None
    live: tuple[NodeId, ...]
    fenced: tuple[NodeId, ...]


class Unfenced(NamedTuple):
    """A broker takes part."""

    broker_id: NodeId
    rack: str | None


class ShutdownBegan(NamedTuple):
    """A broker is being stopped in order."""

    broker_id: NodeId
    live: tuple[NodeId, ...]
    fenced: tuple[NodeId, ...]


class Unregistered(NamedTuple):
    """A broker was taken out of the cluster."""

    broker_id: NodeId
    rack: str | None


class DirectoriesNamed(NamedTuple):
    """A broker said which log directories it has; directly before it, offline ones led to removals."""

    broker_id: NodeId


class RegistrationRepeated(NamedTuple):
    """A registration was written that changes nothing, such as a second fence."""

    broker_id: NodeId


class ControllerElected(NamedTuple):
    """A controller begins its reign; a text of Kafka before 4.1 does not say which."""

    leader_id: NodeId | None
    live: tuple[NodeId, ...]
    fenced: tuple[NodeId, ...]


class Unknown(NamedTuple):
    """A record that cannot be taken into account: its kind or version, or the partition's state before it."""

    name: str


Registration = Registered | Fenced | Unfenced | ShutdownBegan | Unregistered | DirectoriesNamed | RegistrationRepeated

Fact = Created | Changed | Restated | Configured | Deleted | Registration | ControllerElected | Unknown
