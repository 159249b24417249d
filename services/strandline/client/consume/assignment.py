"""Which partitions a consumer reads: those it was assigned, and those that a whole topic is given later.

Invariant: a topic assigned as a whole is read as a whole. A partition that it is given later is read from its first
record on, wherever the others began: everything in it was written after the assignment. With ``stop_at_end`` nothing
is added, because the end was fixed when reading began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from strandline.client.cluster.metadata import Cluster
from strandline.client.consume.cursor import Cursor
from strandline.client.consume.fetching import Fetching
from strandline.client.log import log, some_of
from strandline.client.offsets import EARLIEST, LATEST
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset, TopicPartition

Where = Literal["beginning", "end"]


class Assignment:
    """What one consumer reads."""

    def __init__(
        self, cluster: Cluster, fetching: Fetching, *, grows: bool, of_group: bool, on_added: Callable[[], None]
    ) -> None:
        """``of_group``: reading begins where the consumer's group has committed, if it has.

        ``on_added`` is called when a topic that is read as a whole was given partitions.
        """
        self._cluster = cluster
        self._fetching = fetching
        self._grows = grows
        self._of_group = of_group
        self._on_added = on_added
        # By topic id: a topic that is deleted and created again is another one.
        self._whole: dict[str, str] = {}
        cluster.listen(self._add_new_partitions)

    async def assign(
        self,
        partitions: Iterable[tuple[str, int] | str],
        start: Where | int,
        *,
        follows: bool = True,
        end: int | None = None,
    ) -> None:
        """Read exactly these from now on; ``start`` is where those begin that were not read before, and ``end`` the
        offset in front of which they stop.

        ``follows``: a bare topic's partitions that are added later are read too.

        Raises:
            Refused: UNKNOWN_TOPIC_OR_PARTITION.
        """
        chosen: dict[TopicPartition, Cursor] = {}
        whole: dict[str, str] = {}
        for entry in partitions:
            name = entry if isinstance(entry, str) else entry[0]
            topic = await self._cluster.topic(name)
            count = len(topic.partitions)
            if isinstance(entry, str):
                whole[topic.topic_id] = name
            for index in range(count) if isinstance(entry, str) else (entry[1],):
                if not 0 <= index < count:
                    message = f"partition {index} of topic '{name}' must be 0 to {count - 1}"
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
                tp = TopicPartition(topic.topic_id, index)
                chosen[tp] = self._fetching.cursors.get(tp) or self._new_cursor(name, tp, start)
                if end is not None:
                    chosen[tp].stop_at = Offset(end)
        cursors = self._fetching.cursors
        for tp in cursors.keys() - chosen.keys():
            self._fetching.drop(cursors[tp])
        cursors.clear()
        cursors.update(chosen)
        self._whole = whole if self._grows and follows else {}
        log.info("assigned %s", some_of((cursor.topic, tp.partition) for tp, cursor in chosen.items()))
        # A topic may have been given partitions while the next one was waited for.
        self._add_new_partitions()

    def add(self, topic: str, tp: TopicPartition, start: Where | None) -> Cursor:
        """Read this partition as well; ``start`` None: from where the consumer's group has committed, or not at all."""
        cursor = self._fetching.cursors[tp] = self._new_cursor(topic, tp, start or "beginning")
        cursor.is_committed_only = start is None
        return cursor

    def remove(self, cursors: Iterable[Cursor]) -> None:
        """Read these no more; what is fetched of them is dropped."""
        for cursor in cursors:
            self._fetching.drop(cursor)
            self._fetching.cursors.pop(cursor.tp, None)

    def clear(self) -> None:
        """Read nothing."""
        self._whole = {}
        self.remove(list(self._fetching.cursors.values()))

    def _add_new_partitions(self) -> None:
        added: list[tuple[str, int]] = []
        for topic_id, name in self._whole.items():
            topic = self._cluster.view.topic_by_id(topic_id)
            for partition in topic.partitions if topic is not None else ():
                if partition.tp not in self._fetching.cursors:
                    self._fetching.cursors[partition.tp] = self._new_cursor(name, partition.tp, "beginning")
                    added.append((name, partition.tp.partition))
        if added:
            log.info("assigned %s as well, added to a topic that is read as a whole", some_of(added))
            self._on_added()

    def _new_cursor(self, topic: str, tp: TopicPartition, start: Where | int) -> Cursor:
        cursor = Cursor(topic, tp)
        if isinstance(start, int):
            cursor.seek(offset=Offset(start))
        else:
            cursor.seek(time=EARLIEST if start == "beginning" else LATEST)
        if self._of_group:
            cursor.begin_at_committed()
        return cursor
