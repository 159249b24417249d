"""What the demo's producer and consumer processes tell their parent: one json line each, many times a second.

Invariant: a report is the whole state of its ledger, so that losing or merging reports loses nothing; the last
one has ``done`` set and comes only after everything was sent and acknowledged, or read.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

from strandline.cli.demo.ledgers import AckLedger, ReadLedger, Silence

REPORT_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class AckReport:
    """The producing side. Times are monotonic ms, which all processes of a machine share."""

    acked: int = 0
    refused: int = 0
    twice: int = 0
    missing: int = 0
    not_in_order: int = 0
    began_ms: float = 0.0
    at_ms: float = 0.0
    held_ms: float = 0.0
    """How long nothing was sent on purpose."""
    is_held: bool = False
    last_heard_ms: tuple[float, ...] = ()
    silences: tuple[Silence, ...] = ()
    done: bool = False

    @classmethod
    def of(
        cls,
        ledger: AckLedger,
        *,
        began_ms: float,
        at_ms: float,
        done: bool,
        held_ms: float = 0.0,
        is_held: bool = False,
    ) -> AckReport:
        """The ledger's state."""
        return cls(
            acked=ledger.acked,
            refused=ledger.refused,
            twice=ledger.twice,
            missing=ledger.missing,
            not_in_order=ledger.not_in_order,
            began_ms=began_ms,
            at_ms=at_ms,
            held_ms=held_ms,
            is_held=is_held,
            last_heard_ms=tuple(ledger.last_heard_ms),
            silences=tuple(ledger.silences),
            done=done,
        )

    @classmethod
    def parse(cls, line: bytes) -> AckReport:
        """A report from its json line."""
        content = json.loads(line)
        silences = tuple(Silence(*entry) for entry in content.pop("silences"))
        return cls(silences=silences, last_heard_ms=tuple(content.pop("last_heard_ms")), **content)

    @property
    def sending_s(self) -> float:
        """How long lines were on their way, in seconds."""
        return max(self.at_ms - self.began_ms - self.held_ms, 1.0) / 1000

    @property
    def longest_silence_ms(self) -> float:
        """The longest time that a partition gave no acknowledgement."""
        return max((silence.length_ms for silence in self.silences), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """The consuming side."""

    consumed: int = 0
    twice: int = 0
    missing: int = 0
    not_in_order: int = 0
    strangers: int = 0
    done: bool = False

    @classmethod
    def of(cls, ledger: ReadLedger, *, done: bool) -> ReadReport:
        """The ledger's state."""
        return cls(
            consumed=ledger.consumed,
            twice=ledger.twice,
            missing=ledger.missing,
            not_in_order=ledger.not_in_order,
            strangers=ledger.strangers,
            done=done,
        )

    @classmethod
    def parse(cls, line: bytes) -> ReadReport:
        """A report from its json line."""
        return cls(**json.loads(line))


def tell(report: AckReport | ReadReport) -> None:
    """Prints a report, at once."""
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    sys.stdout.flush()
