"""Decides how a question that cannot be answered is told: what is wrong, by which rule, and what to do next.

Invariant: whoever shows these errors shows their text alone; it names the file or the argument.
"""

from __future__ import annotations


class InputTrouble(Exception):
    """The input cannot be used as it is."""


class NothingThere(InputTrouble):
    """There are no exported events where they were looked for."""


class DamagedFile(InputTrouble):
    """A file is not what it must be."""


class Incomplete(InputTrouble):
    """Less of the input is there than was required."""
