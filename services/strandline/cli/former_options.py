"""Options whose names had a unit, and what they are called now; taken for one release, shown in no help.

A number without a unit stood behind them. Invariant: what is rewritten is repeated on stderr in today's form.
"""

from __future__ import annotations

import typer

FORMER = {
    "node shutdown": {"--deadline-s": ("--deadline", "s")},
    "produce": {"--linger-ms": ("--linger", "ms")},
    "sim run": {"--minutes": ("--time", "m")},
    "sim shrink": {"--seconds": ("--time", "s")},
    "certs new": {"--days": ("--valid-for", "d")},
    "certs add": {"--days": ("--valid-for", "d")},
    "certs renew": {"--days": ("--valid-for", "d")},
}
"""By command: the former name, today's, and the unit of the number."""


def in_todays_words(words: list[str]) -> list[str]:
    """The command line with today's options instead of former ones."""
    named = next((name for name in FORMER if words[: name.count(" ") + 1] == name.split()), None)
    if named is None:
        return words
    written: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, number = word.partition("=")
        if word == "--":
            return [*written, word, *rest]
        if option not in FORMER[named]:
            written.append(word)
            continue
        today, unit = FORMER[named][option]
        value = f"{number if equals else next(rest, '')}{unit}"
        typer.echo(f"strandline: {option} is now {today} {value}; the next release refuses the old name", err=True)
        written += [today, value]
    return written
