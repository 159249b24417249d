"""`strandline analytics stream`: computes five statistics live, from files as they are exported.

Invariant: an interrupt ends it between two micro-batches, and the same command continues where it stopped.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.durations import Duration, duration_option, read_duration
from strandline_analytics.commands.options import Inputs, Memory, existing
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, spark_session
from strandline_analytics.tables import ResultFormat

if TYPE_CHECKING:
    from strandline_analytics.stream.job import Query

_LOOK_EVERY_S = 1
_SAME_S = 1.0
"""Signals within this time count as one: `timeout` sends one to a process and one to its group."""

OutDir = Annotated[
    str, typer.Option("--out", metavar="DIR|URI", help="Rows are written to DIR/live, final ones separately.")
]
Checkpoint = Annotated[
    str,
    typer.Option("--checkpoint", metavar="DIR|URI", help="Directory that stores the reading position; one per --out."),
]
Trigger = Annotated[
    Duration | None,
    duration_option("--trigger", help="Look for files this often, as 10s, until interrupted. Default: take what is "
                    "there now, and end.", least="1s", step="1s"),
]  # fmt: skip
Step = Annotated[Duration, duration_option("--step", help="Window length, such as 1h.", least="1s", step="1s")]
Delay = Annotated[
    Duration,
    duration_option("--delay", help="How much later than the newest event an event may arrive.", least="1s", step="1s"),
]
FinalOnly = Annotated[bool, typer.Option("--final-only", help="Write no provisional rows of open windows.")]

LiveFormat = Annotated[
    ResultFormat,
    typer.Option("--format", help="Only parquet: `strandline analytics run` writes the tables of closed hours."),
]


def stream(
    inputs: Inputs,
    out: OutDir,
    checkpoint: Checkpoint,
    trigger: Trigger = None,
    step: Step = read_duration("1h"),
    delay: Delay = read_duration("15m"),
    final_only: FinalOnly = False,
    kind: LiveFormat = ResultFormat.PARQUET,
    memory: Memory = DEFAULT_MEMORY,
) -> None:
    """Write S1, S8, S10, S15 and S18 as they happen: provisional rows first, final ones of closed windows."""
    _check_format(kind)
    existing(inputs)
    check_installed()
    with spark_session(memory, progress=trigger is None) as spark:
        from strandline_analytics.scope import HOUR_US
        from strandline_analytics.stream.job import StreamJob, start, trouble_of
        from strandline_analytics.stream.machine import Timing

        job = StreamJob(
            inputs=tuple(inputs),
            out=f"{out.rstrip('/')}/live",
            checkpoint=checkpoint,
            trigger=None if trigger is None else f"{trigger.us // 1_000_000} seconds",
            delay_s=delay.us // 1_000_000,
            provisional=not final_only,
            # The controller reports every state again at the start of each hour, so after an hour it is certain what
            # is lost.
            timing=Timing(step_us=step.us, horizon_us=HOUR_US + delay.us),
        )
        query = start(spark, job)
        try:
            _await(query)
        except Exception as error:
            trouble = trouble_of(error)
            if trouble is None:
                raise
            raise trouble from error
        finally:
            query.stop()
        typer.echo(_summary(query.recentProgress, job.out))


def _check_format(kind: ResultFormat) -> None:
    """Refuse tables: here rows become final, not hours, and a final row may differ from that of the batch run.

    Raises:
        typer.BadParameter: a format other than files was asked for.
    """
    if kind.is_table:
        raise typer.BadParameter(
            f"--format {kind.value}: live rows become final one by one, are written without the events that come "
            "later, and name no input, so they are not the rows of a closed hour, which these tables hold. Leave it "
            f"out, and run `strandline analytics run --format {kind.value}` every hour for the tables"
        )


def _await(query: Query) -> None:
    """Wait for the end of the query, or for an interrupt and the end of the micro-batch that it interrupts."""
    with _interrupts() as asked:
        at: int | None = None
        # An unbounded wait would not notice an interrupt.
        while not query.awaitTermination(_LOOK_EVERY_S):
            if not asked.is_set():
                continue
            if at is None:
                at = _batch(query)
                typer.echo("strandline: stopping after this micro-batch; the same command goes on from here", err=True)
            if not query.status["isTriggerActive"] or _batch(query) > at:
                return


def _batch(query: Query) -> int:
    """The number of the last micro-batch that has ended; -1 before the first."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event set by an interrupt or SIGTERM, on which Spark would drop unfinished work. A second one ends at once."""
    asked = threading.Event()
    asked_s = 0.0

    def hear(number: int, _: object) -> None:
        nonlocal asked_s
        if not asked.is_set():
            asked_s = time.monotonic()
            asked.set()
        elif time.monotonic() - asked_s > _SAME_S:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary(progress: Any, out: str) -> str:
    rows = sum(one.numInputRows for one in progress)
    marks = [mark for one in progress if (mark := one.eventTime.get("watermark")) and not mark.startswith("1970")]
    until = marks[-1] if marks else "nothing"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{now} {out}: {rows} events in {len(progress)} batches; everything up to {until} was there"
