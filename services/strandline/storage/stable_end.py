"""How far readers of committed records could read a log, and which transaction stops them there, by its files (X12).

Invariant: the code that serves folds the transactions, from the newest sound snapshot and the batches behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from strandline.core.producers import ProducerLedger
from strandline.core.types import Offset
from strandline.storage.inspect import LogBounds, headers_from
from strandline.storage.producer_snapshot import newest_snapshot


class Holder(NamedTuple):
    """The transaction that an LSO waits for."""

    first_offset: Offset
    producer_id: int | None
    """None: only that it was decided is remembered."""
    producer_epoch: int | None
    """That of the transaction."""
    marker_offset: Offset | None
    """Where it is decided; None while it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StableEnd:
    """The last stable offset at the saved HW; the node that wrote the files may have been further."""

    last_stable_offset: Offset
    holder: Holder | None
    """None: every transaction below the HW is decided by a marker below it."""


def stable_end(directory: Path, bounds: LogBounds) -> StableEnd:
    """Fold the transactions of a log up to its end, damage or none, and look from its saved HW."""
    snapshot = newest_snapshot(directory, bounds.leo)
    ledger = ProducerLedger(snapshot.batches, snapshot.transactions)
    markers = {marker.offset: (marker.producer_id, marker.producer_epoch) for marker in snapshot.transactions.markers}
    for header in headers_from(directory, Offset(max(snapshot.offset, bounds.log_start_offset))):
        ledger.observe(header, header.base_offset)
        if header.marker is not None and header.producer is not None:
            markers[header.base_offset] = header.producer[:2]
    ledger.transactions.settled(bounds.high_watermark)
    holder = _holder(ledger, markers)
    if holder is None or holder.first_offset >= bounds.high_watermark:
        return StableEnd(last_stable_offset=bounds.high_watermark, holder=None)
    return StableEnd(last_stable_offset=holder.first_offset, holder=holder)


def _holder(ledger: ProducerLedger, markers: Mapping[Offset, tuple[int, int]]) -> Holder | None:
    """The transaction that began first among those that are open, or may be open again; ``markers`` by offset."""
    transactions = ledger.transactions
    found = [
        Holder(first_offset, producer_id, ledger.newest_epoch(producer_id), None)
        for producer_id, first_offset in transactions.open.items()
    ]
    for first_offset, marker_offset in transactions.ended:
        # Of markers below the snapshot the last one of each producer is known.
        producer_id, marker_epoch = markers.get(marker_offset, (None, None))
        # A marker is in the epoch after its transaction's (X6).
        epoch = None if marker_epoch is None else marker_epoch - 1
        found.append(Holder(first_offset, producer_id, epoch, marker_offset))
    return min(found, default=None, key=lambda holder: holder.first_offset)
