"""Access to Kubernetes: kubectl, like an operator, with a deadline for everything.

Invariant: a command that failed is an error with kubectl's output; no state of the cluster is cached.
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
    """A command of kubectl, or a wait, that failed."""


def kubectl(*words: str, given: str | None = None, timeout_s: float = 120.0) -> str:
    """One command; its stdout.

    Raises:
        Failed: it ended with another exit code than 0.
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
    """A command of Strandline in the clients' pod, as JSON. Its exit code reports the cluster's health, and is ignored.

    Raises:
        Failed: its output cannot be parsed.
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
    """Whether its readiness probe succeeds and it is not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def until(look: Callable[[], _T], what: str, timeout_s: float) -> _T:
    """Polls until there is a result; returns it.

    Raises:
        Failed: not in time; with the last failure, if a poll failed.
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
    """Waits until this many data nodes are ready, and no more exist."""

    def look() -> bool:
        found = pods()
        return len(found) == count and all(map(is_ready, found.values()))

    until(look, f"{count} data nodes are ready", timeout_s)
