"""The fuzz targets of docs/RELIABILITY.md by name: the module with the oracle, and the length of inputs, for each.

Invariant: an oracle takes plain bytes and returns or raises, so hypothesis, Atheris and a file of an earlier find run
the same check.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Target(NamedTuple):
    """``examples`` is the budget in `make test-all`; ``input_bytes`` the maximum length of an input."""

    module: str
    examples: int
    input_bytes: int
    oracle: str = "check"


TARGETS = {
    "batches": Target("target_batches", 300, 400),
    "recovery": Target("target_logs", 250, 40, "check_recovered"),
    "small-files": Target("target_small_files", 400, 200),
    "journal": Target("target_journal", 100, 300),
    "store": Target("target_store", 60, 120),
    "etcd-values": Target("target_etcd_values", 300, 60),
    "metadata-service": Target("target_metadata_service", 60, 400),
    "indexes": Target("target_logs", 100, 200, "check_indexed"),
    "node-rpcs": Target("target_node_rpcs", 25, 1_200),
    "controller-rpcs": Target("target_controller_rpcs", 25, 1_200),
    "core": Target("target_core", 200, 600),
    "messages": Target("target_messages", 150, 600),
    "records-apart": Target("target_messages", 300, 400, "check_apart"),
    "transport": Target("target_transport", 200, 400),
    "transport-cuts": Target("target_transport", 100, 300, "check_cuts"),
    "transport-recorded": Target("target_transport", 100, 1_500, "check_recorded"),
    "kafka-history": Target("target_kafka_history", 60, 300),
}


def oracle(name: str) -> Callable[[bytes], None]:
    """The check of a target."""
    check: Callable[[bytes], None] = getattr(import_module(TARGETS[name].module), TARGETS[name].oracle)
    return check


def kept_inputs(name: str) -> list[Path]:
    """Committed inputs of a target: its corpus, and inputs that failed once."""
    return sorted(path for folder in ("corpus", "finds") for path in (HERE / folder / name).glob("*"))


if __name__ == "__main__":
    print(*TARGETS)
