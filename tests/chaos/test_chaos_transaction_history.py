"""What transforming processes write down, and the verdict on it: what breaks exactly once is found (I39)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.exactly_once import Found
from harness.history_file import HistoryWriter
from harness.transaction_history_file import INPUTS_FROM, Asked, Input, TransactionHistoryWriter, transactions
from harness.transformers import GROUP, INPUTS, AwaitedCommit, Transformers

from strandline_sim.checks.history import Place, Read, SendOutcome, Value
from strandline_sim.checks.transaction_history import GroupAt, Moved, Polled, ReadUpTo, TxnOutcome

COUNT = 4
LATE_S = 1e12
"""After everything that was written down."""


class History:
    """Four inputs at offsets 0 to 3 of one partition, and what was made of them in another topic's only partition."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.producer = HistoryWriter(directory / "history-producer.jsonl")
        self.writer = TransactionHistoryWriter(directory / "history-t0.1.jsonl")
        self.found = Found(ends=[ReadUpTo(0, 100), ReadUpTo(INPUTS_FROM, COUNT)])
        for seq in range(COUNT):
            self.producer.send(Value("in", seq), INPUTS, 0)
            self.producer.sent(Value("in", seq), SendOutcome.OK, seq)
            self.found.inputs.append(Read("r", Place(INPUTS_FROM, seq), Value("in", seq), LATE_S))

    def transforms(self, name: str, seqs: range, *, at: int, outcome: TxnOutcome | None) -> None:
        """A transaction of these inputs, whose outputs lie from ``at`` on; None: its process dies when it has asked."""
        self.writer.begun(name, "transformer-0", GROUP, [Input(0, seq, Value("in", seq), 0) for seq in seqs])
        self.writer.asked(name)
        if outcome is not None:
            offsets = range(at, at + len(seqs)) if outcome is TxnOutcome.COMMITTED else ()
            self.writer.ended(name, outcome, list(offsets))

    def reads(self, name: str, seqs: range, *, at: int) -> None:
        """The outputs of a transaction are read from ``at`` on."""
        for index, seq in enumerate(seqs):
            self.found.outputs.append(Read("o", Place(0, at + index), Value(name, index), LATE_S))
            self.found.origins.append(Value("in", seq))

    def close(self) -> None:
        """Everything is in the files."""
        self.writer.close()
        self.producer.close()

    def judged(self, *, group_at: int = COUNT, is_read: bool = True) -> list[str]:
        """The names of what is wrong, each once; ``group_at``: what the group has committed at the end."""
        failures: list[str] = []
        run: Any = SimpleNamespace(directory=self.directory, counters=Counter(), measured={})
        run.check = lambda is_so, sentence: None if is_so else failures.append(sentence)
        transformers = Transformers(run=run, slots=1)
        self.close()
        transformers._histories[self.directory / "history-t0.1.jsonl"] = 0
        self.found.groups.append(GroupAt(GROUP, INPUTS_FROM, group_at))
        transformers._found = self.found if is_read else None
        transformers.judge()
        return sorted({failure.partition(":")[0] for failure in failures})


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """The first two inputs are transformed and committed, and read."""
    history = History(tmp_path)
    history.transforms("t0.1-1", range(2), at=0, outcome=TxnOutcome.COMMITTED)
    history.reads("t0.1-1", range(2), at=0)
    yield history
    history.close()


REST = range(2, COUNT)


def test_one_output_for_each_input_is_right(history: History) -> None:
    """The rest is aborted once, then committed behind the aborted records and two markers."""
    history.transforms("t0.1-2", REST, at=3, outcome=TxnOutcome.ABORTED)
    history.transforms("t0.1-3", REST, at=6, outcome=TxnOutcome.COMMITTED)
    history.reads("t0.1-3", REST, at=6)

    assert history.judged() == []


def test_an_unknown_outcome_may_be_either(history: History) -> None:
    """A process that was killed when it had asked for its commit: all of it counts, as was read."""
    history.transforms("t0.1-2", REST, at=3, outcome=None)
    history.reads("t0.1-2", REST, at=3)

    assert history.judged() == []


def test_an_input_without_an_output_fails(history: History) -> None:
    """The group went past two inputs of which nothing was committed."""
    assert history.judged() == ["I39", "lost-offset"]


def test_a_second_output_of_an_input_fails(history: History) -> None:
    """An input is given to a second transaction that is committed, too."""
    history.transforms("t0.1-2", range(1, COUNT), at=3, outcome=TxnOutcome.COMMITTED)
    history.reads("t0.1-2", range(1, COUNT), at=3)

    assert history.judged() == ["I39", "duplicate"]


def test_an_output_of_an_aborted_transaction_fails(history: History) -> None:
    """Its inputs have no other output, so that only the word of the transaction tells."""
    history.transforms("t0.1-2", REST, at=3, outcome=TxnOutcome.ABORTED)
    history.reads("t0.1-2", REST, at=3)

    assert history.judged() == ["G1a", "lost-offset", "phantom"]


def test_a_lost_output_fails(history: History) -> None:
    """Of a committed transaction one record is not to be read."""
    history.transforms("t0.1-2", REST, at=3, outcome=TxnOutcome.COMMITTED)
    history.reads("t0.1-2", range(2, 3), at=3)

    assert history.judged() == ["I39", "torn", "unseen"]


def test_an_offset_that_did_not_move_fails(history: History) -> None:
    """The outputs of a committed transaction are there, and its group is where it was before."""
    history.transforms("t0.1-2", REST, at=3, outcome=TxnOutcome.COMMITTED)
    history.reads("t0.1-2", REST, at=3)

    assert history.judged(group_at=2) == ["lost-offset"]


def test_an_output_of_nothing_fails(history: History) -> None:
    """An output names an input that nobody sent."""
    history.transforms("t0.1-2", REST, at=3, outcome=TxnOutcome.COMMITTED)
    history.reads("t0.1-2", REST, at=3)
    history.found.origins[-1] = Value("in", 99)

    assert history.judged() == ["I39"]


def test_a_run_that_was_not_read_fails(history: History) -> None:
    """Nothing is known of a run whose logs nobody read at the end."""
    (failure,) = history.judged(is_read=False)

    assert "not read" in failure


def test_the_file_says_what_was_written(history: History) -> None:
    """Inputs, outputs and offsets of a transaction; without an end it is unknown if its commit was asked for, else
    aborted; a torn line is none."""
    history.transforms("t0.1-2", REST, at=3, outcome=None)
    history.writer.begun("t0.1-3", "transformer-0", GROUP, [])
    history.close()
    path = history.directory / "history-t0.1.jsonl"
    with path.open("a") as source:
        source.write('["asked", 1, "t0.1-3"')
    first, second, third = transactions([path])

    assert [txn.outcome for txn in (first, second, third)] == [
        TxnOutcome.COMMITTED,
        TxnOutcome.UNKNOWN,
        TxnOutcome.ABORTED,
    ]
    assert [(send.value, send.partition, send.offset) for send in first.sends] == [
        (Value("t0.1-1", 0), 0, 0),
        (Value("t0.1-1", 1), 0, 1),
    ]
    assert [send.offset for send in second.sends] == [None, None]
    assert second.polls == tuple(Polled(GROUP, Place(INPUTS_FROM, seq), Value("in", seq)) for seq in REST)
    assert second.offsets == (Moved(GROUP, INPUTS_FROM, COUNT),)


def test_only_a_later_commit_of_the_same_id_ends_the_wait(tmp_path: Path) -> None:
    """Measured is the first commit that was asked for after the fault, by an id whose coordinator was hit; none at all
    fails."""
    failures: list[str] = []
    run: Any = SimpleNamespace(directory=tmp_path, counters=Counter(), measured={})
    run.check = lambda is_so, sentence: None if is_so else failures.append(sentence)
    transformers = Transformers(run=run, slots=2)
    transformers._commits += [Asked("a", 9.0, 10.5), Asked("b", 11.0, 11.5), Asked("a", 12.0, 14.0)]
    transformers.awaited += [
        AwaitedCommit("hit a", 10.0, frozenset("a")),
        AwaitedCommit("hit b later", 12.0, frozenset("b")),
    ]
    transformers._judge_commits()

    assert run.measured["commits_away_max_s"] == 4.0
    assert failures == ["hit b later: no commit was acknowledged after it"]


def test_commits_are_found_while_they_are_written(history: History) -> None:
    """A transaction whose end comes after a look is found by the next one, and no commit twice."""
    run: Any = SimpleNamespace(directory=history.directory)
    transformers = Transformers(run=run, slots=1)
    transformers._histories[history.directory / "history-t0.1.jsonl"] = 0
    history.transforms("t0.1-2", REST, at=3, outcome=None)
    history.writer.flush()
    before = len(transformers._look())
    history.writer.ended("t0.1-2", TxnOutcome.COMMITTED, [3, 4])
    history.writer.flush()

    assert before == 1
    assert [each.transactional_id for each in transformers._look()] == ["transformer-0"] * 2
