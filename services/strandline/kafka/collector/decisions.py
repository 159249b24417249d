"""The decisions that a metadata log has of a collection's time, written into its export beside its looks (A23).

A client cannot read the log: it is a folder of a controller, or of several, which grows meanwhile. What the quorum
calls committed, as a broker says it, is proved.

Invariant: events begin with the state at the collection's beginning, and none is written twice. A log that has nothing
of that time makes no claim: the export has then what the looks have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strandline.export.destination import Destination
from strandline.kafka.history.continuing import Earlier
from strandline.kafka.history.importing import Assumed, Import, cluster_of
from strandline.kafka.history.log_files import Copy, open_copy
from strandline.kafka.history.window import Window
from strandline.kafka.history.wire import Unreadable


class Decisions:
    """Follows the logs of one cluster; every call may wait for the disk."""

    def __init__(
        self, directories: Sequence[Path], cluster_id: str, destination: Destination, began_us: int, min_isr: int | None
    ) -> None:
        self._directories = directories
        self._cluster_id = cluster_id
        self._destination = destination
        self._window = Window(start_us=began_us)
        self._assumed = Assumed(min_isr=min_isr)
        self._earlier: Earlier | None = None
        self.rows = 0
        self.files = 0
        self.source: dict[str, object] | None = None
        """What was imported so far, as an import says it; None: nothing of this time."""

    def take(self, committed_below: int) -> None:
        """Write what was decided since the last time.

        Args:
            committed_below: the quorum's high watermark; 0 if it is not known.

        Raises:
            Unreadable: a log cannot be read, or is not the one that was read before.
            OSError: a log or the destination fails.
        """
        work = Import(
            copies_of(self._directories, self._cluster_id),
            self._cluster_id,
            assumed=self._assumed,
            window=self._window,
            earlier=self._earlier,
            committed_below=committed_below,
        )
        proof = work.result.proof
        if self._earlier is not None and proof.proved_end <= self._earlier.end_offset:
            return
        if proof.proved_ms * 1_000 < self._window.start_us:
            return
        done = work.write_events(self._destination)
        self.rows, self.files = self.rows + done.rows, self.files + done.files
        self.source = work.source()
        self._earlier = work.as_earlier()


def copies_of(directories: Sequence[Path], cluster_id: str) -> list[Copy]:
    """The logs in these directories.

    Raises:
        Unreadable: one has none, or is of another cluster.
    """
    copies = [open_copy(directory) for directory in directories]
    found = cluster_of(copies, cluster_id)
    if found != cluster_id:
        raise Unreadable(f"the log is of the cluster {found}, and the brokers of {cluster_id}")
    return copies
