"""What another source hears of an import, so that it can place what it says between the decisions of the log.

The source is of another package, which may wait and has its own emitters; an import only tells it what holds.
"""

from __future__ import annotations

from typing import Protocol

from strandline_kafka.metadata.state import ClusterState, Partition


class Listener(Protocol):
    """Follows the states of an import. Times are the controller's, ms since 1970."""

    @property
    def name(self) -> str:
        """Of the source, as an export names it."""

    @property
    def rows(self) -> int:
        """How many events it has written."""

    @property
    def files(self) -> int:
        """In how many files."""

    def elected(self, partition: Partition, at_ms: int) -> None:
        """A leader epoch of a partition begins."""

    def deleted(self, partition: Partition, at_ms: int) -> None:
        """A partition ends with its topic; another one may have its name from then on."""

    def pass_until(self, now_ms: int, state: ClusterState) -> None:
        """A state holds until now."""

    def end(self, now_ms: int, state: ClusterState) -> None:
        """Nothing follows."""

    def said(self) -> dict[str, object]:
        """What the export says of the source."""
