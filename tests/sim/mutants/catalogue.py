"""All mutants, in the order of the gate."""

from __future__ import annotations

from importlib import import_module

from mutants import mutant

for _subject in "elections fetches groups isr offsets reigns stores transactions truncation watermarks".split():
    import_module(f"mutants.{_subject}")
_ORDER = """
    R1 R2 R3 R4 R5 R6a R6b R7a R7b R8 R9a R9b R10 R11 R12a R12b R51 R52 R53 R54 R55 R56 R83 R57 R58 R59 R63 R64
    R86 R60 79 80 R61 R62 78 R84 R85 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 34 29a 29b 30 31 32 33 48 35
    35b 36 37 38 39 43a 43b 44 45 47 47b 47c 50 73 74 75 76 77 81a 81b 87 88 89 90 91 92 93 101 102 103 104 105a
    105b 106 107a 107b 108 109 110a 110b 111 112a 112b 113a 113b 114 115 116 120 121 122
""".split()
"""The numbers as `docs/mutants.json` lists them; a mutant without a place here is an error."""

MUTANTS = tuple(sorted(mutant.MUTANTS, key=lambda each: _ORDER.index(each.number)))
"""``R1`` to ``R12``, then 13 to 26 and 47; 27 to 39, 48 and 50 of several controllers and of stores that forget, and 43
to 45 of what is given twice, or believed; R51 to R56, R83 to R85 and 73 to 77 of consumer groups; R57 to R64, R86 and
78 to 81 and 87 to 93 of transactions; from 101 on those of elections by reports and of wrong peers, and from 120 on
those that others invented.

The pairs that prove a mask stand with the mutant that is masked."""

REQUIRED = tuple(f"R{number}" for number in (*range(1, 13), *range(51, 65), *range(83, 87)))
