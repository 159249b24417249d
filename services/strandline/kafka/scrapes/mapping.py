"""Which time series of a Prometheus is the end of which replica's log; exporters name it by rules of their own (A29).

The two rule sets that are known are that of the examples of jmx_exporter, which most charts and operators have taken
over, and its format without any rule. Capital letters do not count. Any other is given in a file:

    metric = "kafka_log_end"        # the name of the metric
    topic = "topic"                 # the labels that say which log it is
    partition = "partition"
    node = "instance"               # the label that says of which broker

    [where]                         # only series with these labels
    cluster = "orders"

    [nodes]                         # values of that label, and the brokers' numbers
    "kafka-1:7071" = 1

Invariant: the broker of a series is its number, or named in the file; it is never guessed from a host's name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping as Map
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from strandline.kafka.history.wire import Unreadable

Labels = Map[str, str]
Place = tuple[str, int]
"""Topic and partition."""

NAME = "__name__"
"""The label of the metric's name."""
_NODE_LABELS = ("node_id", "broker_id", "node", "broker")
"""Where a broker's number is looked for, if the file does not say it."""
_INSTANCE = "instance"
_TEXTS = ("metric", "topic", "partition", "node")
_MOST_NODE = 1 << 31
_MOST_DIGITS = 10
_NAME_FORM = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


class Form(NamedTuple):
    """One rule set: the metric's name, in small letters, and which other labels it must have."""

    metric: str
    where: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        labels = ", ".join(f'{name}="{value}"' for name, value in self.where)
        return f"{self.metric}{{{labels}}}" if labels else self.metric


DEFAULTS = (Form("kafka_log_log_logendoffset"), Form("kafka_log_log_value", (("name", "LogEndOffset"),)))
"""The rule of jmx_exporter's examples, and its format where no rule fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """How series are read."""

    forms: tuple[Form, ...] = DEFAULTS
    topic: str = "topic"
    partition: str = "partition"
    node: str | None = None
    """None: the first of some usual labels whose value is a number."""
    nodes: Map[str, int] = field(default_factory=dict)

    def is_end(self, labels: Labels) -> bool:
        """Whether a series is the end of a log."""
        name = labels.get(NAME, "").lower()
        return any(
            name == form.metric and all(labels.get(label) == value for label, value in form.where)
            for form in self.forms
        )

    def place_of(self, labels: Labels) -> Place:
        """The partition of a series.

        Raises:
            Unreadable: a label is missing, or the partition is no number.
        """
        topic, partition = labels.get(self.topic), labels.get(self.partition)
        if topic is None or partition is None or not _is_number(partition):
            raise Unreadable(
                f"a series of {labels.get(NAME)} has no labels {self.topic} and {self.partition} with a topic and a "
                "number; name those that it has in --prometheus-mapping"
            )
        # Without a rule the exporter quotes values as the JMX name has them.
        return topic.removeprefix('"').removesuffix('"'), int(partition)

    def node_of(self, labels: Labels) -> int:
        """The broker of a series.

        Raises:
            Unreadable: nothing says which it is.
        """
        named = (self.node,) if self.node is not None else (*_NODE_LABELS, _INSTANCE)
        for label in named:
            value = labels.get(label)
            if value is not None and value in self.nodes:
                return self.nodes[value]
            if value is not None and _is_number(value):
                return int(value)
        shown = next(
            (f"{label}={labels[label]!r:.80}" for label in reversed(named) if label in labels), "no such label"
        )
        raise Unreadable(
            f"which broker a series of {labels.get(NAME)} is of is not known ({shown}); name it under [nodes] in "
            "--prometheus-mapping"
        )


def read_mapping(path: Path) -> Mapping:
    """The mapping of a file.

    Raises:
        Unreadable: it cannot be read, or says something that is not known.
    """
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Unreadable(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if unknown := said.keys() - {*_TEXTS, "where", "nodes"}:
        raise Unreadable(f"{path}: {min(unknown)!r} is not known; known are {', '.join((*_TEXTS, 'where', 'nodes'))}")
    for name in _TEXTS:
        if name in said and not (isinstance(said[name], str) and _NAME_FORM.fullmatch(said[name])):
            raise Unreadable(f'{path}: {name} must be the name of a metric or label, as {name} = "{name}"')
    where = tuple(sorted(_table(path, said, "where", str).items()))
    nodes = _table(path, said, "nodes", int)
    if not all(0 <= node < _MOST_NODE for node in nodes.values()):
        raise Unreadable(f"{path}: a broker's number is not negative and has 31 bits")
    bare = (Form(said["metric"].lower()),) if "metric" in said else DEFAULTS
    texts = {name: said[name] for name in ("topic", "partition", "node") if name in said}
    return Mapping(forms=tuple(Form(form.metric, (*form.where, *where)) for form in bare), nodes=nodes, **texts)


def _table(path: Path, said: dict[str, Any], name: str, kind: type) -> dict[str, Any]:
    table = said.get(name, {})
    if not isinstance(table, dict) or not all(type(value) is kind for value in table.values()):
        word = "numbers" if kind is int else "texts"
        raise Unreadable(f"{path}: [{name}] must be a table of {word}")
    return table


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) < _MOST_NODE
