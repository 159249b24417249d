"""Decides which nodes live: a session is kept by heartbeats and ends by silence, but never by our own pause.

Invariant (M59): a gap in the controller's own time costs no node its session; between two heartbeats of a node
such gaps extend its session by one session time-out at most, so a dead node is fenced in the end. While the controller
could not be reached at all, by its own decision, every deadline moves by that whole time (C14, TR30).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strandline.core.types import NodeId


@dataclass(slots=True)
class _Session:
    deadline_ms: int
    last_heartbeat_ms: int | None = None
    extended_ms: int = 0
    metadata_offset: int | None = None


class Sessions:
    """The sessions of this reign. Volatile: a restarted controller grants full ones."""

    def __init__(self, session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self._timeout_ms = session_timeout_ms
        self._interval_ms = heartbeat_interval_ms
        self._sessions: dict[NodeId, _Session] = {}
        self._last_tick_ms: int | None = None
        self._first = _Session(0)

    def begin(self, now_ms: int) -> None:
        """A reign begins, and with it a session that no heartbeat keeps: whoever lives speaks before it is over."""
        self._first = _Session(now_ms + self._timeout_ms)

    def first_is_over(self, now_ms: int) -> bool:
        """Whether a session has passed since the reign began, our own pauses left out (M59)."""
        return self._first.deadline_ms <= now_ms

    def grant(self, node_id: NodeId, now_ms: int) -> None:
        """Begin a full session: a registration, or the start of the controller's reign."""
        self._sessions[node_id] = _Session(now_ms + self._timeout_ms)

    def heard(self, node_id: NodeId, now_ms: int, metadata_offset: int) -> None:
        """A heartbeat: the session is full again."""
        self._sessions[node_id] = _Session(now_ms + self._timeout_ms, now_ms, 0, metadata_offset)

    def end(self, node_id: NodeId) -> None:
        """End a session at once."""
        self._sessions.pop(node_id, None)

    def is_alive(self, node_id: NodeId) -> bool:
        """Whether the node's session has not ended."""
        return node_id in self._sessions

    def alive(self) -> Iterable[NodeId]:
        """Every node with a session."""
        return self._sessions.keys()

    @property
    def timeout_ms(self) -> int:
        """How long a session lasts after a heartbeat."""
        return self._timeout_ms

    def last_heartbeat_ms(self, node_id: NodeId) -> int | None:
        """When the node was last heard in this session."""
        session = self._sessions.get(node_id)
        return session.last_heartbeat_ms if session else None

    def metadata_offset(self, node_id: NodeId) -> int | None:
        """How far the node has applied the metadata, as it last said."""
        session = self._sessions.get(node_id)
        return session.metadata_offset if session else None

    def silent(self, now_ms: int) -> set[NodeId]:
        """Every node with a session that has missed two heartbeats, those that are due included."""
        quiet_ms = 2 * self._interval_ms
        return {n for n, s in self._sessions.items() if now_ms - (s.deadline_ms - self._timeout_ms) > quiet_ms}

    def tick(self, now_ms: int) -> dict[NodeId, int | None]:
        """The sessions that are due, with the time of each node's last heartbeat. The caller ends them."""
        gap_ms = 0 if self._last_tick_ms is None else now_ms - self._last_tick_ms
        self._last_tick_ms = now_ms
        if gap_ms > self._interval_ms:
            self._extend(gap_ms)
        return {n: s.last_heartbeat_ms for n, s in self._sessions.items() if s.deadline_ms <= now_ms}

    def resume(self, now_ms: int, closed_ms: int) -> None:
        """Nobody could be heard for the last ``closed_ms``: every deadline moves by that time (C14).

        It is then two heartbeat intervals away at least, so that every node that lives can be heard before it is due.
        That part counts as an extension of M59: a store that stutters must not keep a dead leader for ever.
        """
        self._last_tick_ms = now_ms
        for session in self._all():
            session.deadline_ms += closed_ms
            self._extend_by(session, now_ms + 2 * self._interval_ms - session.deadline_ms)

    def _extend(self, gap_ms: int) -> None:
        for session in self._all():
            self._extend_by(session, gap_ms)

    def _all(self) -> Iterable[_Session]:
        return (*self._sessions.values(), self._first)

    def _extend_by(self, session: _Session, wanted_ms: int) -> None:
        extra_ms = max(0, min(wanted_ms, self._timeout_ms - session.extended_ms))
        session.deadline_ms += extra_ms
        session.extended_ms += extra_ms
