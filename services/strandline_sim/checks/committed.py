"""What was ever committed: for each partition the one sequence of batches that any leader's HW passed.

Invariant (I10): the sequence only grows, and what an offset is bound to never changes. Two logs are compared by the
hash of everything below an offset, so every comparison is of whole prefixes and costs one look-up.
"""

from __future__ import annotations

from strandline_sim.world.disk import LogFile


class Broken(Exception):
    """An invariant does not hold. ``name`` is its number in RELIABILITY.md#invariants."""

    def __init__(self, name: str, sentence: str, *, offset: int | None = None) -> None:
        super().__init__(f"{name}: {sentence}")
        self.name = name
        self.offset = offset


class Committed:
    """The history variable C of one partition, with TrueHW = ``end``."""

    __slots__ = ("_hash_at", "_value_at", "end", "records")

    def __init__(self) -> None:
        self.end = 0
        self.records = 0
        self._hash_at: dict[int, int] = {0: 0}
        self._value_at: dict[int, tuple[int, int]] = {}

    def grow(self, log: LogFile, hw: int) -> None:
        """A leader's HW passed what nobody's had passed before.

        Raises:
            Broken: the leader's log is not a continuation of what was committed (I10).
        """
        self.check(log, self.end, "I10", "a leader's log")
        index = log.index_of(self.end)
        ends = log.ends
        while index < len(ends) and ends[index] <= hw:
            header, value = log.headers[index], log.values[index]
            assert isinstance(value, int)
            self._hash_at[ends[index]] = log.hashes[index]
            self._value_at[header.base_offset] = (value, header.record_count)
            self.records += header.record_count
            index += 1
        if log.hash_at(hw) is None:
            raise Broken("I10", f"the HW {hw} lies within a batch", offset=hw)
        self.end = hw

    def check(self, log: LogFile, end: int, name: str, who: str) -> None:
        """Whether ``log`` holds exactly what was committed below ``end``.

        Raises:
            Broken: under ``name``.
        """
        wanted = self._hash_at.get(end)
        if wanted is None:
            raise Broken(name, f"{who} counts to {end}, where nothing was committed (end {self.end})", offset=end)
        found = log.hash_at(end)
        if found != wanted:
            why = f"ends at {log.leo}" if found is None else "differs"
            raise Broken(name, f"{who} lacks committed records below {end}: it {why}", offset=self.first_bad(log, end))

    def is_committed(self, end: int, log_hash: int) -> bool:
        """Whether the log with this hash at ``end`` is committed up to there."""
        return self._hash_at.get(end) == log_hash

    def has_border(self, offset: int) -> bool:
        """Whether a committed batch ends at ``offset``."""
        return offset in self._hash_at

    def hash_below(self, offset: int) -> int:
        """The hash of everything committed below ``offset``; 0 if no batch ends there."""
        return self._hash_at.get(offset, 0)

    def value_at(self, base_offset: int) -> tuple[int, int] | None:
        """(Value, record count) of the batch committed at ``base_offset``."""
        return self._value_at.get(base_offset)

    def first_bad(self, log: LogFile, end: int) -> int:
        """The first offset below ``end`` that ``log`` lacks or has otherwise."""
        for border in sorted(self._hash_at):
            if border > end:
                break
            if log.hash_at(border) not in (self._hash_at[border], None) or border > log.leo:
                return max((each for each in self._value_at if each < border), default=border)
        return end
