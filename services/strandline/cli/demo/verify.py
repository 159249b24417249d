"""The facts that the demo proves at its end, each with the number that shows it.

Invariant: every check reads what the run left behind (ledgers, spooled records, log files), never what the load
reported about itself while it ran.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.cli.demo.watch import truncations
from strandline.cli.local.log import verify_files
from strandline.units import duration_text

if TYPE_CHECKING:
    from strandline.cli.demo.ledgers import AckReport, ReadReport
    from strandline.cli.demo.load import Corpus
    from strandline.cli.demo.screen import Scene, Screen
    from strandline.cli.demo.story import Story
    from strandline.cli.local.log_equality import Equality


# ---- verdict
# The end of the demo: which checks passed, which figures it gives, and with which exit code it leaves.
#
# Invariant: one failed check makes the verdict a failure; a check that could not be made has failed.


@dataclass(frozen=True, slots=True)
class Check:
    """One sentence, whether it held, and the number that shows it."""

    sentence: str
    held: bool
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoVerdict:
    """All checks, and the figures of the run in the order of printing."""

    checks: tuple[Check, ...]
    figures: dict[str, str] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    """The same figures as numbers, for `verdict.json` in the run's directory."""

    @property
    def passed(self) -> bool:
        """Whether every check held (and there was one)."""
        return bool(self.checks) and all(check.held for check in self.checks)

    def document(self) -> dict[str, Any]:
        """The verdict for programs."""
        checks = [{"check": check.sentence, "held": check.held, "shown": check.shown} for check in self.checks]
        return {"passed": self.passed, "checks": checks, **self.raw}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that the run left behind."""

    corpus: Corpus
    acks: AckReport
    reads: ReadReport
    spools: list[Path]
    data_directories: list[Path]
    topic: str


def checks(evidence: Evidence) -> list[Check]:
    """All checks, in the order of printing."""
    return [
        acknowledged_once(evidence),
        consumed_once(evidence),
        in_order(evidence),
        contents_equal(evidence),
        *logs_equal(evidence),
    ]


def acknowledged_once(evidence: Evidence) -> Check:
    """Every line has exactly one acknowledgement."""
    acks, lines = evidence.acks, evidence.corpus.lines
    wrong = _faults({"missing": acks.missing, "twice": acks.twice, "refused": acks.refused})
    return Check(
        "every line acknowledged once", not wrong and acks.acked == lines, wrong or f"{acks.acked:,} of {lines:,}"
    )


def consumed_once(evidence: Evidence) -> Check:
    """Every line was read exactly once, and nothing else was."""
    reads, lines = evidence.reads, evidence.corpus.lines
    wrong = _faults(
        {"missing": reads.missing, "twice": reads.twice, "not the line that belongs there": reads.strangers}
    )
    shown = wrong or f"{reads.consumed:,} of {lines:,}"
    return Check("every line consumed once", not wrong and reads.consumed == lines, shown)


def in_order(evidence: Evidence) -> Check:
    """Within a partition, offsets follow the order of sending, and reading follows offsets."""
    wrong = _faults({"acks": evidence.acks.not_in_order, "records": evidence.reads.not_in_order})
    return Check("in order, per partition", not wrong, wrong or f"{evidence.corpus.partitions} partitions")


def contents_equal(evidence: Evidence) -> Check:
    """What was consumed, put together in the order of lines, has the hash of the file."""
    found = joined_hash(evidence.corpus, evidence.spools)
    equal = found == evidence.corpus.sha256
    shown = f"sha256 {found[:16]}" if equal else f"sha256 {found[:16]} is not the file's {evidence.corpus.sha256[:16]}"
    return Check("contents equal to the file", equal, shown)


def joined_hash(corpus: Corpus, spools: list[Path]) -> str:
    """The hash of the spooled records, one line of each partition in turn as they were given out."""
    digest = hashlib.sha256()
    with ExitStack() as stack:
        readers = [stack.enter_context(path.open("rb")) for path in spools]
        for line_number in range(corpus.lines):
            digest.update(readers[corpus.partition_of(line_number)].readline())
        for reader in readers:
            digest.update(reader.read())
    return digest.hexdigest()


def logs_equal(evidence: Evidence) -> list[Check]:
    """Every partition's logs are byte-equal up to the HW, and the HW has reached every record."""
    results = verify_files(evidence.data_directories, evidence.topic)
    different = [f"{result.topic}-{result.partition}: {result.verdict}" for result in results if not result.equal]
    copies = {len(result.replicas) for result in results}
    complete = len(results) == evidence.corpus.partitions and copies == {len(evidence.data_directories)}
    shown = (
        "; ".join(different) or f"{sum(result.batches for result in results):,} batches in {len(results)} partitions"
    )
    equal = Check(f"{len(evidence.data_directories)} logs byte-equal up to the HW", complete and not different, shown)
    return [equal, _nothing_else(evidence, results)]


def _nothing_else(evidence: Evidence, results: list[Equality]) -> Check:
    """The settled part of the logs has exactly the file's lines: no duplicate that was never acknowledged."""
    settled = {result.partition: result.end for result in results}
    wrong = [
        f"partition {partition} holds {settled.get(partition, 0):,}, sent {evidence.corpus.lines_of(partition):,}"
        for partition in range(evidence.corpus.partitions)
        if settled.get(partition) != evidence.corpus.lines_of(partition)
    ]
    total = sum(settled.values())
    return Check("HW covers every record, and no other", not wrong, "; ".join(wrong) or f"{total:,} records")


def _faults(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


# ---- report
# The demo's last act: Spark renders the run as a page, and its figures are held against what the demo saw itself.
#
# Invariant: the demo's side of a comparison never comes from Spark, and a page that could not be made is a failed
# check.

PAGE, FIGURES = "report.html", "report.json"
TIMEOUT_S = 900.0
"""Far above what a slow machine needs; a job that hangs ends."""

Figures = dict[str, Any]


def whats_missing() -> str:
    """Why there can be no report on this machine, and what to do; empty if there can be one."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("strandline_analytics") is None:
        return "Spark is not installed; install it in the checkout with: pip install '.[analytics]'"
    if shutil.which("java") is None:
        return "Java is missing, 17 or newer; install it, on Debian with: apt-get install default-jre-headless"
    return ""


async def make_report(where: Path, story: Story, screen: Screen, scene: Scene) -> Figures:
    """Runs the Spark job on the run's export; the page's figures, or ``{"trouble": why}``."""
    first_us, last_us = story.window_us
    began = time.monotonic()
    screen.gap()
    screen.tell("report", "Spark reads what the services exported, and computes what happened")
    job = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "strandline_analytics.report", "--small", "--steps", "0",
        "--input", str(where / "export"), "--out", str(where / PAGE), "--figures", str(where / FIGURES),
        "--from-us", str(first_us), "--to-us", str(last_us),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert job.stdout is not None and job.stderr is not None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            last_words = await _follow(job.stderr, screen, scene)
            verdict = (await job.stdout.read()).decode(errors="replace").strip()
            code = await job.wait()
    except TimeoutError:
        return {"trouble": f"Spark did not end within {duration_text(TIMEOUT_S * 1000)}"}
    finally:
        scene.making = None
        if job.returncode is None:
            job.kill()
            await job.wait()
    if code:
        return {"trouble": last_words or f"exit code {code}"}
    screen.tell("report", f"{verdict}; made in {duration_text((time.monotonic() - began) * 1000)}: {where / PAGE}")
    figures: Figures = json.loads((where / FIGURES).read_text())
    return figures


async def _follow(stderr: asyncio.StreamReader, screen: Screen, scene: Scene) -> str:
    """Shows the job's progress; its last line that was none."""
    words = ""
    while line := await stderr.readline():
        try:
            reported = json.loads(line)
            scene.making = (str(reported["what"]), int(reported["done"]), int(reported["parts"]))
            screen.refresh()
        except (ValueError, KeyError, TypeError):
            words = line.decode(errors="replace").strip() or words
    return words


def agreement(story: Story, figures: Figures) -> Iterator[Check]:
    """Compares the page with what the demo saw: counts are equal, and the failover is where no ack came."""
    if trouble := figures.get("trouble"):
        yield Check("Spark computed the report", False, str(trouble))
        return
    watch = story.watch
    assert watch is not None and story.load is not None, "the story was played"
    cuts = truncations(story.cluster.directory, watch.partitions[0].tp.topic_id)
    seen = {
        "elections": sum(vote.new is not None for vote in watch.elections),
        "shrinks": watch.shrinks,
        "expands": watch.expands,
        "truncated_records": sum(cut.records for cut in cuts),
    }
    for name, count in seen.items():
        shown = f"{figures[name]:,}" if figures[name] == count else f"{figures[name]}, the demo saw {count}"
        yield Check(f"the report's {name.replace('_', ' ')} are those of the demo", figures[name] == count, shown)
    yield Check("the demo saw every change of the ISR", watch.skipped == 0, f"{watch.skipped} changes were not seen")
    yield from _in_the_gap(story, figures)


def _in_the_gap(story: Story, figures: Figures) -> Iterator[Check]:
    """From the fence to the new epoch's start no partition may have acknowledged anything.

    A partition on which nothing was on its way long enough for a silence to be noted cannot be judged; where that is
    so of all, as with a file of a moment, there is no check.
    """
    assert story.load is not None
    to_wall_us = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000
    inside, outside, longest_us = 0, [], 0
    for failover in figures["failovers"]:
        fence_us, start_us = (failover[name] - to_wall_us for name in ("fence_us", "epoch_start_us"))
        # At the earliest, as far as the controller knows the clock of the new leader.
        start_us -= failover.get("clock_err_us") or 0
        longest_us = max(longest_us, start_us - fence_us)
        silences = (gap for gap in story.load.acks.silences if gap.partition == failover["partition"])
        gaps = [(gap.from_ms * 1000, gap.to_ms * 1000) for gap in silences]
        if any(begin <= fence_us and start_us <= end for begin, end in gaps):
            inside += 1
        elif any(begin < start_us and fence_us < end for begin, end in gaps):
            outside.append(f"p{failover['partition']}")
    shown = f"{inside} of {len(figures['failovers'])}, the longest {longest_us / 1000:.0f} ms from fence to epoch start"
    if inside or outside or not figures["failovers"]:
        held = bool(figures["failovers"]) and not outside
        yield Check("failovers lie between two acks", held, shown + f"; not {', '.join(outside)}" * bool(outside))
