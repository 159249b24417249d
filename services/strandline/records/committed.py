"""Which batches of an answer are given to a reader of committed records: no markers, nothing that was aborted (X14).

Invariant: of an aborted transaction no batch is given, and of every other one all are, whatever part of it the answer
holds, provided that the answer named every aborted transaction that overlaps it. Source: KIP-98, as Kafka's consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.core.types import CONTROL_BIT, TRANSACTIONAL_BIT, Offset
from strandline.records.batch import Batch


def committed(batches: Iterable[Batch], aborted: Iterable[tuple[int, Offset]]) -> Iterator[Batch]:
    """The batches in their order, without those of aborted transactions and without control batches.

    Args:
        batches: of one partition, all of them below its last stable offset.
        aborted: (producer id, first offset) of each aborted transaction with an offset among the batches.
    """
    beginning = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        header = batch.header
        while beginning and beginning[-1][1] < header.next_offset:
            aborting.add(beginning.pop()[0])
        producer_id = None if header.producer is None else header.producer.producer_id
        if header.attributes & CONTROL_BIT:
            # Whatever it says, it ends what its producer had open.
            aborting.discard(-1 if producer_id is None else producer_id)
        elif not header.attributes & TRANSACTIONAL_BIT or producer_id not in aborting:
            yield batch
