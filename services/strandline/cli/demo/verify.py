"""Which facts the demo proves at its end, each with the number that shows it.

Invariant: every check reads what is left behind (ledgers, spooled records, log files), never what the load said
of itself while it ran.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.demo.verdict import Check
from strandline.cli.log import verify_files

if TYPE_CHECKING:
    from strandline.cli.demo.corpus import Corpus
    from strandline.cli.demo.reports import AckReport, ReadReport
    from strandline.cli.log_equality import Equality


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the run left behind."""

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
    """The settled part of the logs holds exactly the file's lines: no duplicate that nobody acknowledged."""
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
