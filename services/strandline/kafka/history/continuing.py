"""What an export says of itself, from which a later import of the same cluster goes on (A17).

The sources must be those of the export: a source that has only half of the time would give figures of half of the time.
An export with brokers' logs is not gone on with: a later line changes rows that are written, such as the cause of a
fence, and a later pair of lines the clock by which earlier ones were placed.

Invariant: no event is written twice, and none is left out between two imports: the later log must hold the batch at
which the earlier one ended, with equal bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.export.destination import Destination
from strandline.export.layout import KAFKA_SOURCE, cluster_folder
from strandline.kafka.history.log_files import FoundBatch
from strandline.kafka.history.wire import Unreadable

METADATA_LOG, BROKER_LOGS = "metadata-log", "broker-logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """An import that is gone on with."""

    first_offset: int
    end_offset: int
    end_crc: int
    """Of the batch that ends there; 0 if it is not known."""
    records: int
    imports: int
    last_seqs: dict[int, int] = field(default_factory=dict)
    """The last number of each reign."""
    unknown: Counter[str] = field(default_factory=Counter)
    nodes: frozenset[int] = frozenset()
    said: Mapping[str, Any] = field(default_factory=dict)
    """Everything that the export says of itself, where another source finds its own end."""

    def check(self, batch: FoundBatch, *, is_first: bool) -> None:
        """Compare a batch of the later log.

        Raises:
            Unreadable: the later log begins behind the end of the earlier one, or is another one.
        """
        begin, end = batch.offset, batch.header.next_offset
        if is_first and begin > self.end_offset:
            raise Unreadable(
                f"the log begins at offset {begin}, and the export ends at {self.end_offset}; what lies between is in "
                f"neither, give a copy that reaches back to {self.end_offset}"
            )
        is_within = begin < self.end_offset < end
        crcs = {self.end_crc, batch.header.crc}
        is_other = end == self.end_offset and len(crcs) > 1 and 0 not in crcs
        if is_within or is_other:
            raise Unreadable(
                f"{batch.path}: offset {self.end_offset - 1} is not what was imported before; the tail that was "
                "trusted then was taken back, or it is another log: import it into a new place"
            )


def earlier_import(
    destination: Destination, cluster_id: str, assumed: dict[str, Any], sources: Sequence[str] = ()
) -> Earlier:
    """The import whose export lies at a place.

    Args:
        assumed: what is assumed now.
        sources: what is read now beside the metadata log.

    Raises:
        Unreadable: there is none of this cluster, or none that can be gone on with.
        OSError: the destination fails.
    """
    folder = cluster_folder(cluster_id)
    if f"{folder}/{KAFKA_SOURCE}" not in destination.names(folder):
        raise Unreadable(f"there is no export of the cluster {cluster_id} to go on with; leave --append out")
    try:
        said = json.loads(destination.get(f"{folder}/{KAFKA_SOURCE}"))
        _check_sources(said["levels"], [METADATA_LOG, *sources])
        if said["window_us"] is not None:
            raise Unreadable("the export is of a window (--from, --to), behind which nothing can be put")
        if said["assumed"] != assumed:
            shown = ", ".join(f"{name}={value}" for name, value in said["assumed"].items() if value is not None)
            raise Unreadable(f"the export was made with --assume {shown or 'nothing'}; give the same")
        return Earlier(
            first_offset=int(said["first_offset"]),
            end_offset=int(said["end_offset"]),
            end_crc=int(said.get("end_crc", 0)),
            records=int(said["records"]),
            imports=int(said.get("imports", 1)),
            last_seqs={int(epoch): int(seq) for epoch, seq in said["last_seqs"].items()},
            unknown=Counter({str(name): int(count) for name, count in said["unknown_records"].items()}),
            nodes=frozenset(map(int, said["nodes"])),
            said=said,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{folder}/{KAFKA_SOURCE} cannot be read, so nothing says where the export ends") from error


def _check_sources(before: Sequence[str], now: Sequence[str]) -> None:
    if BROKER_LOGS in before:
        raise Unreadable(
            "the export was made of brokers' logs too, of which a later line changes what is written already; import "
            "everything into a new place"
        )
    if list(before) != list(now):
        shown = ", ".join(map(str, before))
        raise Unreadable(f"the export was made of {shown}; give the same sources, or import into a new place")
