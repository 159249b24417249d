"""How the test speaks with Kubernetes: kubectl, as an operator would, with a deadline for everything.

Invariant: a command that failed is an error with the words that kubectl said; no state of the cluster is remembered.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

NAMESPACE = "strandline"
REPLICAS = "strandline-replica"
CLIENTS = "clients"
_T = TypeVar("_T")


class Failed(Exception):
    """A command of kubectl, or a wait, that did not end as it should."""


def kubectl(*words: str, given: str | None = None, timeout_s: float = 120.0) -> str:
    """One command; its stdout.

    Raises:
        Failed: it ended with something else than 0.
    """
    done = subprocess.run(["kubectl", *words], input=given, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise Failed(f"kubectl {' '.join(words)}: {done.stderr.strip()[-600:]}")
    return done.stdout


def in_namespace(*words: str, given: str | None = None, timeout_s: float = 120.0) -> str:
    """The same in the namespace of the overlay."""
    return kubectl("--namespace", NAMESPACE, *words, given=given, timeout_s=timeout_s)


def get(*words: str) -> Any:
    """An object or a list of them."""
    return json.loads(in_namespace("get", *words, "--output", "json"))


def strandline(*words: str) -> Any:
    """A command of Strandline in the clients' pod, as JSON. Its exit code says how the cluster is, and is not ours.

    Raises:
        Failed: it said nothing that can be read.
    """
    command = ["kubectl", "-n", NAMESPACE, "exec", CLIENTS, "--", "strandline", *words, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise Failed(f"strandline {' '.join(words)}: {(done.stderr or done.stdout).strip()[-300:]}") from None


def pods() -> dict[str, Any]:
    """The data nodes' pods by name."""
    found = get("pods", "--selector", "app.kubernetes.io/component=replica")["items"]
    return {pod["metadata"]["name"]: pod for pod in found}


def is_ready(pod: Any) -> bool:
    """Whether its readiness probe succeeds and nobody has deleted it."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def until(look: Callable[[], _T], what: str, timeout_s: float) -> _T:
    """Looks until there is something; what there is.

    Raises:
        Failed: not in time; with the last failure, if looking failed.
    """
    deadline, said = time.monotonic() + timeout_s, ""
    while True:
        try:
            found = look()
            if found:
                return found
        except (Failed, subprocess.TimeoutExpired) as error:
            said = f": {error}"
        if time.monotonic() > deadline:
            raise Failed(f"not within {timeout_s:g} s: {what}{said}")
        time.sleep(0.3)


def all_ready(count: int, timeout_s: float = 240.0) -> None:
    """Waits until so many data nodes are ready, and no more are there."""

    def look() -> bool:
        found = pods()
        return len(found) == count and all(map(is_ready, found.values()))

    until(look, f"{count} data nodes are ready", timeout_s)
