"""A transactional producer and the coordinator's markers, as a cluster of cores sees them."""

from __future__ import annotations

from cluster_of_cores import Cluster
from core_builders import TP, batch, marker, partition_image

from strandline.core.types import BatchHeader

ID = "orders"


def leading(*, min_isr: int = 1, isr: tuple[int, ...] = (1, 2)) -> Cluster:
    """Node 1 leads partition 0 for nodes 1 and 2; there is no core for node 2."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(TP, isr=isr, min_isr=min_isr))
    return cluster


def following() -> Cluster:
    """Node 1 leads partition 0, node 2 follows it."""
    cluster = Cluster(1, 2)
    cluster.push_all(partition_image(TP))
    cluster.settle()
    return cluster


class Transactions:
    """Sends for one transactional id; every first batch of a transaction is confirmed by its coordinator."""

    def __init__(self, cluster: Cluster, producer: int = 7) -> None:
        self.cluster = cluster
        self.producer = producer
        self.epoch = 0
        self.sequence = 0
        self.is_open = False

    def next_batch(self, records: int = 1) -> BatchHeader:
        """The next batch of the open transaction, or the first of a new one."""
        header = batch(
            records, producer=self.producer, producer_epoch=self.epoch, sequence=self.sequence, transactional=True
        )
        self.sequence += records
        return header

    def send(self, records: int = 1) -> int:
        """Produce; returns the id of the request."""
        request = self.cluster.produce(self.next_batch(records), transactional_id=ID)
        if not self.is_open:
            self.cluster.coordinator_says()
            self.is_open = True
        return request

    def end(self, *, commit: bool = True, coordinator: int = 1) -> int:
        """Write the marker of the next epoch; returns the id of the request."""
        self.epoch, self.sequence, self.is_open = self.epoch + 1, 0, False
        return self.cluster.produce(marker(self.producer, self.epoch, commit=commit, coordinator=coordinator))
