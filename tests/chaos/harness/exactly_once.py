"""Whether each input that was acknowledged has exactly one committed output (I39), by what lies in the logs at the end.

An output names its input in its key, so this needs nothing of what the transforming processes believe; what they wrote
down is judged too, by `strandline_sim.checks.transaction_history` and `strandline_sim.checks.history`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from strandline_sim.checks.history import Anomaly, Operation, Read, Send, SendOutcome, Value, anomalies
from strandline_sim.checks.transaction_history import GroupAt, ReadUpTo, Txn, sends_of, transaction_anomalies


@dataclass(slots=True)
class Found:
    """What lay in the logs at the end, for one who reads committed records."""

    inputs: list[Read] = field(default_factory=list)
    outputs: list[Read] = field(default_factory=list)
    origins: list[Value] = field(default_factory=list)
    """The input that each output is made of."""
    ends: list[ReadUpTo] = field(default_factory=list)
    groups: list[GroupAt] = field(default_factory=list)


def judged(produced: Sequence[Operation], txns: Sequence[Txn], found: Found) -> list[Anomaly]:
    """Everything wrong with what was produced, transformed and found, read to the ends of both topics."""
    reads = [*found.inputs, *found.outputs]
    return [
        *one_output_each((each for each in produced if isinstance(each, Send)), found),
        *transaction_anomalies([*txns, *reads, *found.ends, *found.groups]).anomalies,
        *anomalies([*produced, *sends_of(txns), *reads]),
    ]


def one_output_each(inputs: Iterable[Send], found: Found) -> Iterator[Anomaly]:
    """An input that was acknowledged, or lies in the log all the same, has one output; any other has none."""
    outputs = Counter(found.origins)
    wanted = {read.value for read in found.inputs}
    wanted |= {send.value for send in inputs if send.outcome is SendOutcome.OK}
    for value in sorted(wanted | outputs.keys()):
        count = outputs[value]
        if count != (value in wanted):
            named = f"{value.client}/{value.seq}"
            yield Anomaly("I39", f"input {named} has {count} committed outputs, {int(value in wanted)} wanted")
