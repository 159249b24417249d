"""How one partition is named to `strandline txn`: `orders-3`, as its answers and the log's folder name it."""

from __future__ import annotations

import typer


def partition_of(text: str) -> tuple[str, int]:
    """`orders-3` as topic and partition; the topic's own name may have hyphens.

    Raises:
        typer.BadParameter: the text does not end in a hyphen and a number.
    """
    topic, hyphen, number = text.rpartition("-")
    if not (topic and hyphen and number.isdecimal()):
        raise typer.BadParameter(f"{text!r} names no partition; write the topic, a hyphen and a number: orders-3")
    return topic, int(number)
