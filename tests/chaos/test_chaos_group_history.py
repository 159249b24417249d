"""What members of a group and transforming processes write down, and the verdicts on it (I39)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import history_file, member_history_file as written, transformers
from harness.group import GROUP, PARTITIONS, TOPIC, Group, _unsettled
from harness.history_file import HistoryWriter

from strandline.client import DescribedGroup, TopicPartition
from strandline_sim.checks.group_history import (
    CommitOutcome,
    Fetch,
    Given,
    MemberOperation,
    OffsetCommitted,
    Share,
    Taken,
)
from strandline_sim.checks.history import Read, RecordPlace, RecordValue, SendOutcome
from strandline_sim.checks.transaction_history import GroupAt, Moved, Polled, ReadUpTo, TxnOutcome

TP, SHARE = TopicPartition(TOPIC, 0), Share(GROUP, TOPIC, 0)


def _run(directory: Path) -> tuple[Any, list[str]]:
    """A run that is judged, and the list of what is wrong with it."""
    failures: list[str] = []
    run: Any = SimpleNamespace(directory=directory, counters=Counter(), measured={})
    run.check = lambda is_so, sentence: None if is_so else failures.append(sentence)
    return run, failures


class Clock:
    """The clock of everybody who writes; each look at it is a second later."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        """A second after the last look."""
        self._now_s += 1.0
        return self._now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock in place of the machine's."""
    clock = Clock()
    monkeypatch.setattr(history_file, "time", clock)
    monkeypatch.setattr(written, "time", clock)
    return clock


class Members:
    """The history files of one run, as its members, its producer and the one who asks write them."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory, self.clock = directory, clock
        self.writers: dict[str, written.GroupHistoryWriter] = {}
        self.producer = HistoryWriter(directory / "history-producer.jsonl")

    def __getitem__(self, name: str) -> written.GroupHistoryWriter:
        if name not in self.writers:
            self.writers[name] = written.GroupHistoryWriter(self.directory / f"history-{name}.jsonl")
        return self.writers[name]

    def sent(self, begin: int, end: int) -> None:
        """The producer's records of these offsets are acknowledged."""
        for seq in range(begin, end):
            self.producer.send(RecordValue("jobs", seq), TOPIC, 0)
            self.producer.sent(RecordValue("jobs", seq), SendOutcome.OK, seq)

    def works(self, name: str, begin: int, end: int) -> None:
        """A member is given records, and commits behind them."""
        self.gets(name, begin, end)
        serial = f"{name}/{end}"
        self[name].commit(name, serial, TP, end)
        self[name].committed(name, serial, TP, CommitOutcome.DONE)

    def gets(self, name: str, begin: int, end: int) -> None:
        """A member asks for records, and is given some."""
        values = [(offset, RecordValue("jobs", offset)) for offset in range(begin, end)]
        self[name].given(self.clock.monotonic(), name, TP, values)

    def asks(self, serial: str | None, offset: int | None) -> None:
        """A client asks what is committed."""
        self["asked"].fetched(self.clock.monotonic(), TP, serial, offset)

    def judged(self, *, has_caught_up: bool = True) -> list[str]:
        """What is wrong with it, once the group had caught up or before."""
        run, failures = _run(self.directory)
        group = Group(run, 6)
        for name, writer in self.writers.items():
            writer.close()
            if name != "asked":
                group._histories[self.directory / f"history-{name}.jsonl"] = 0
        self.producer.close()
        group._has_caught_up = has_caught_up
        group.judge()
        return failures


@pytest.fixture
def members(tmp_path: Path, clock: Clock) -> Members:
    """One partition: m0 works on its records, then m1 does."""
    members = Members(tmp_path, clock)
    members.sent(0, 20)
    members["m0"].taken("m0", TP)
    members.works("m0", 0, 10)
    members.asks("m0/10", 10)
    members["m0"].dropped("m0", TP, "revoked")
    members["m1"].taken("m1", TP)
    members.works("m1", 10, 20)
    return members


def test_a_partition_that_is_handed_over_is_right(members: Members) -> None:
    """Nothing is wrong with a history in which everything was worked on and committed."""
    assert members.judged() == []


def test_the_files_say_what_was_written(tmp_path: Path, clock: Clock) -> None:
    """Every line as an operation; offsets with a gap are two ranges; a read names each time that a member took it."""
    writer = written.GroupHistoryWriter(tmp_path / "history.jsonl")
    writer.taken("m0", TP)
    writer.given(2.5, "m0", TP, [(0, RecordValue("jobs", 0)), (1, RecordValue("jobs", 1)), (5, RecordValue("jobs", 2))])
    writer.commit("m0", "m0/1", TP, 6)
    writer.committed("m0", "m0/1", TP, CommitOutcome.NOT_WRITTEN)
    writer.fetched(9.5, TP, None, None)
    writer.close()
    found = written.member_operations([tmp_path / "history.jsonl"], GROUP)

    assert [type(each) for each in found] == [Taken, Given, Given, OffsetCommitted, Fetch]
    assert [(each.begin, each.end) for each in found if isinstance(each, Given)] == [(0, 2), (5, 6)]
    assert [each.outcome for each in found if isinstance(each, OffsetCommitted)] == [CommitOutcome.NOT_WRITTEN]
    assert {each.share for each in found} == {SHARE}
    (*_, last) = written.member_reads([tmp_path / "history.jsonl"], TOPIC)
    assert (last.consumer, last.place, last.value) == ("m0, time 1", RecordPlace(0, 5), RecordValue("jobs", 2))


def test_a_killed_member_leaves_a_true_history(members: Members) -> None:
    """Its last line is torn, and its last commit has an unknown outcome: it may be fetched or not."""
    members["m1"].commit("m1", "m1/open", TP, 20)
    members["m1"].flush()
    with (members.directory / "history-m1.jsonl").open("a") as source:
        source.write('["given", 1, 2, "m1", "jo')
    members.asks("m1/20", 20)
    members.asks("m1/open", 20)

    assert members.judged() == []


def test_a_record_that_is_still_to_be_worked_on_is_right(members: Members) -> None:
    """A group that has not caught up may still work on it; that it has not is said once, by the wait for it."""
    members.sent(20, 21)

    assert members.judged(has_caught_up=False) == []


def _goes_on_as_a_zombie(members: Members) -> None:
    members.works("m0", 10, 12)
    members.gets("m1", 10, 20)


@pytest.mark.parametrize(
    ("deeds", "said"),
    [
        # The producer's last record was given to no member, although the group committed everything.
        (lambda members: members.sent(20, 21), ["unseen: jobs/20"]),
        # m0 goes on after m1 took the partition, and its commit is taken while m1 holds it.
        (_goes_on_as_a_zombie, ["I32", "I29"]),
        # What m1 committed is gone, and what m0 had committed before is back.
        (lambda members: members.asks("m0/10", 10), ["I30", "went-back"]),
    ],
    ids=["never read", "zombie", "offset that goes back"],
)
def test_what_breaks_a_group_fails(members: Members, deeds: Callable[[Members], None], said: list[str]) -> None:
    """What each of the three checks of a group's history finds is a failure of the run."""
    deeds(members)
    failures = members.judged()

    assert all(any(part in failure for failure in failures) for part in said), failures


def test_commits_that_stay_away_too_long_fail(tmp_path: Path) -> None:
    """Only a commit that was sent after the fault counts, and it must be acknowledged in time."""
    history: list[MemberOperation] = [
        OffsetCommitted("m0", SHARE, 1, "m0/1", 10_000_000, 14_000_000, CommitOutcome.DONE),
        OffsetCommitted("m0", SHARE, 2, "m0/2", 11_000_000, 12_000_000, CommitOutcome.UNKNOWN),
    ]
    run, failures = _run(tmp_path)
    group = Group(run, 6)
    group.expect_commits("in time", 10.0, 4.5)
    group.expect_commits("late", 10.0, 3.5)
    group.expect_commits("never", 10.5, 60.0)
    group._judge_commits(history)

    assert [failure.split(":")[0] for failure in failures] == ["late", "never"]
    assert failures[0] == "late: no commit was acknowledged for 4.0 s, 3.5 s allowed"


@pytest.mark.parametrize(
    ("state", "held", "members", "says"),
    [
        ("Stable", [tuple(range(PARTITIONS))], 1, ""),
        ("Reconciling", [tuple(range(PARTITIONS))], 1, "it is Reconciling with 1 members"),
        ("Stable", [tuple(range(PARTITIONS))], 2, "it is Stable with 1 members"),
        ("Stable", [tuple(range(1, PARTITIONS))], 1, "its members hold"),
        ("Stable", [tuple(range(PARTITIONS)), (0,)], 2, "its members hold"),
    ],
)
def test_a_group_is_settled_when_everybody_has_something(
    state: str, held: list[tuple[int, ...]], members: int, says: str
) -> None:
    """All are members, the group is stable, and each partition is read by one of them."""
    rows: Any = [SimpleNamespace(assignment=tuple(TopicPartition(TOPIC, index) for index in of)) for of in held]
    group = DescribedGroup(GROUP, state, 5, 5, "uniform", 1, tuple(rows))

    assert _unsettled(group, members).startswith(says)
    assert bool(_unsettled(group, members)) == bool(says)


# What transforming processes write down, and the verdict on it: what breaks exactly once is found (I39).


COUNT = 4
LATE_S = 1e12
"""After everything that was written down."""


class History:
    """Four inputs at offsets 0 to 3 of one partition, and what was made of them in another topic's only partition."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.producer = HistoryWriter(directory / "history-producer.jsonl")
        self.writer = written.TransactionHistoryWriter(directory / "history-t0.1.jsonl")
        self.found = transformers.Found(ends=[ReadUpTo(0, 100), ReadUpTo(written.INPUTS_FROM, COUNT)])
        for seq in range(COUNT):
            self.producer.send(RecordValue("in", seq), transformers.INPUTS, 0)
            self.producer.sent(RecordValue("in", seq), SendOutcome.OK, seq)
            self.found.inputs.append(Read("r", RecordPlace(written.INPUTS_FROM, seq), RecordValue("in", seq), LATE_S))

    def transforms(self, name: str, seqs: range, *, at: int, outcome: TxnOutcome | None) -> None:
        """A transaction of these inputs, whose outputs lie from ``at`` on; None: its process dies when it has asked."""
        self.writer.begun(
            name,
            "transformer-0",
            transformers.GROUP,
            [written.Input(0, seq, RecordValue("in", seq), 0) for seq in seqs],
        )
        self.writer.asked(name)
        if outcome is not None:
            offsets = range(at, at + len(seqs)) if outcome is TxnOutcome.COMMITTED else ()
            self.writer.ended(name, outcome, list(offsets))

    def reads(self, name: str, seqs: range, *, at: int) -> None:
        """The outputs of a transaction are read from ``at`` on."""
        for index, seq in enumerate(seqs):
            self.found.outputs.append(Read("o", RecordPlace(0, at + index), RecordValue(name, index), LATE_S))
            self.found.origins.append(RecordValue("in", seq))

    def close(self) -> None:
        """Everything is in the files."""
        self.writer.close()
        self.producer.close()

    def judged(self, *, group_at: int = COUNT, is_read: bool = True) -> list[str]:
        """The names of what is wrong, each once; ``group_at``: what the group has committed at the end."""
        run, failures = _run(self.directory)
        processes = transformers.Transformers(run, 1)
        self.close()
        processes._histories[self.directory / "history-t0.1.jsonl"] = 0
        self.found.groups.append(GroupAt(transformers.GROUP, written.INPUTS_FROM, group_at))
        processes._found = self.found if is_read else None
        processes.judge()
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


@pytest.mark.parametrize(
    ("outcome", "made_of", "read", "group_at", "said"),
    [
        # A process that was killed when it had asked for its commit: all of it counts, as was read.
        (None, REST, REST, COUNT, []),
        # The group went past two inputs of which nothing was committed.
        (None, range(0), range(0), COUNT, ["I39", "lost-offset"]),
        # Of a committed transaction one record is not to be read.
        (TxnOutcome.COMMITTED, REST, range(2, 3), COUNT, ["I39", "torn", "unseen"]),
    ],
    ids=["unknown outcome", "no output", "lost output"],
)
def test_what_breaks_exactly_once_fails(
    history: History, outcome: TxnOutcome | None, made_of: range, read: range, group_at: int, said: list[str]
) -> None:
    """I39: each acknowledged input has one committed output, and the group's offsets lie behind exactly these."""
    if made_of:
        history.transforms("t0.1-2", made_of, at=3, outcome=outcome)
        history.reads("t0.1-2", read, at=3)

    assert history.judged(group_at=group_at) == said


def test_one_output_for_each_input_is_right(history: History) -> None:
    """The rest is aborted once, then committed behind the aborted records and two markers."""
    history.transforms("t0.1-2", REST, at=3, outcome=TxnOutcome.ABORTED)
    history.transforms("t0.1-3", REST, at=6, outcome=TxnOutcome.COMMITTED)
    history.reads("t0.1-3", REST, at=6)

    assert history.judged() == []


def test_an_output_of_nothing_fails(history: History) -> None:
    """An output names an input that was never sent."""
    history.transforms("t0.1-2", REST, at=3, outcome=TxnOutcome.COMMITTED)
    history.reads("t0.1-2", REST, at=3)
    history.found.origins[-1] = RecordValue("in", 99)

    assert history.judged() == ["I39"]


def test_a_run_that_was_not_read_fails(history: History) -> None:
    """Nothing is known of a run whose logs were not read at the end."""
    (failure,) = history.judged(is_read=False)

    assert "not read" in failure


def test_the_file_says_what_was_written(history: History) -> None:
    """Inputs, outputs and offsets of a transaction; without an end it is unknown if its commit was asked for, else
    aborted; a torn line is none."""
    history.transforms("t0.1-2", REST, at=3, outcome=None)
    history.writer.begun("t0.1-3", "transformer-0", transformers.GROUP, [])
    history.close()
    path = history.directory / "history-t0.1.jsonl"
    with path.open("a") as source:
        source.write('["asked", 1, "t0.1-3"')
    first, second, third = written.transactions([path])

    assert [txn.outcome for txn in (first, second, third)] == [
        TxnOutcome.COMMITTED,
        TxnOutcome.UNKNOWN,
        TxnOutcome.ABORTED,
    ]
    assert [(send.value, send.partition, send.offset) for send in first.sends] == [
        (RecordValue("t0.1-1", 0), 0, 0),
        (RecordValue("t0.1-1", 1), 0, 1),
    ]
    assert [send.offset for send in second.sends] == [None, None]
    assert second.polls == tuple(
        Polled(transformers.GROUP, RecordPlace(written.INPUTS_FROM, seq), RecordValue("in", seq)) for seq in REST
    )
    assert second.offsets == (Moved(transformers.GROUP, written.INPUTS_FROM, COUNT),)


def test_only_a_later_commit_of_the_same_id_ends_the_wait(tmp_path: Path) -> None:
    """Measured is the first commit that was asked for after the fault, by an id whose coordinator was hit; none at all
    fails."""
    run, failures = _run(tmp_path)
    processes = transformers.Transformers(run, 2)
    processes._commits += [
        written.Asked("a", 9.0, 10.5),
        written.Asked("b", 11.0, 11.5),
        written.Asked("a", 12.0, 14.0),
    ]
    processes.awaited += [
        transformers.AwaitedCommit("hit a", 10.0, frozenset("a")),
        transformers.AwaitedCommit("hit b later", 12.0, frozenset("b")),
    ]
    processes._judge_commits()

    assert run.measured["commits_away_max_s"] == 4.0
    assert failures == ["hit b later: no commit was acknowledged after it"]


def test_commits_are_found_while_they_are_written(history: History) -> None:
    """A transaction whose end comes after a look is found by the next one, and no commit twice."""
    run, _ = _run(history.directory)
    processes = transformers.Transformers(run, 1)
    processes._histories[history.directory / "history-t0.1.jsonl"] = 0
    history.transforms("t0.1-2", REST, at=3, outcome=None)
    history.writer.flush()
    before = len(processes._look())
    history.writer.ended("t0.1-2", TxnOutcome.COMMITTED, [3, 4])
    history.writer.flush()

    assert before == 1
    assert [each.transactional_id for each in processes._look()] == ["transformer-0"] * 2
