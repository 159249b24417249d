"""A core that answers events from a script, and a replacement for the end of the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from strandline.core.log.effects import Effect
from strandline.core.log.events import Event
from strandline.core.messages import PartitionView, ReplicaStateView
from strandline.core.types import TopicPartition
from strandline.runtime.driver import Driver
from strandline.runtime.exit_codes import ExitCode

Script = dict[type[Any], Callable[[Any], Sequence[Effect]]]


class ScriptedCore:
    """Stores every event; returns the script's answer for the event's type, else nothing."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or {}
        self.seen: list[Event] = []
        self.purgatory_full = False

    def step(self, event: Event) -> Sequence[Effect]:
        self.seen.append(event)
        return self.script.get(type(event), lambda _: ())(event)

    def coordinator_partition(self, topic: str, key: str) -> TopicPartition | None:
        return None

    def coordinated(self, topic: str) -> Sequence[TopicPartition]:
        return ()

    def describe_partition(self, tp: TopicPartition, now_ms: int) -> PartitionView | None:
        return None

    def describe_replica(self, tp: TopicPartition) -> ReplicaStateView | None:
        return None

    def kinds(self) -> list[str]:
        """The names of the received events, in order."""
        return [type(event).__name__ for event in self.seen]


class ProcessEnded(BaseException):
    """Raised where the process would have ended."""

    def __init__(self, code: ExitCode, line: str) -> None:
        self.code = code
        self.line = line
        super().__init__(line)


def end(code: ExitCode, line: str) -> NoReturn:
    """Replaces `stop_process`."""
    raise ProcessEnded(code, line)


def driver_with(core: ScriptedCore, table: dict[type[Any], Callable[[Any], Event | None]], **options: Any) -> Driver:
    """A driver over ``core`` whose clock is fixed at 1000 ms."""
    driver = Driver(core, clock=lambda: 1_000, stop=end, **options)
    driver.attach(table)
    return driver
