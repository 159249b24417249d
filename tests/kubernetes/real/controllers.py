"""Which controller decides, where it runs, and from when on another one does.

Invariant: what is asked is asked of the cluster, as an operator would; nothing is concluded from pods alone.
"""

from __future__ import annotations

from typing import Any

from kubectl import CLIENTS, Failed, get, in_namespace, is_ready, kubectl, strandline, until
from machine import HOME_LABEL

CONTROLLERS = "strandline-controller"


def controller_pods() -> dict[str, Any]:
    """The controllers' pods by name, which are their ids."""
    found = get("pods", "--selector", "app.kubernetes.io/component=controller")["items"]
    return {pod["metadata"]["name"]: pod for pod in found}


def active() -> str:
    """The id of the controller that decides.

    Raises:
        Failed: none did within a minute.
    """
    return until(_active, "a controller decides", 60)


def _active() -> str | None:
    listed = strandline("cluster", "status")["controllers"]
    return next((str(each["controller_id"]) for each in listed if each["is_active"]), None)


def another_than(gone: str) -> str:
    """Waits until another controller decides; returns its id."""

    def look() -> str | None:
        now = _active()
        return now if now not in (None, gone) else None

    return until(look, f"another controller than {gone} decides", 60)


def whole(timeout_s: float = 240.0) -> None:
    """Waits until three controllers are ready and are listed by the one that decides."""

    def look() -> bool:
        found = controller_pods()
        listed = {each["controller_id"] for each in strandline("cluster", "status")["controllers"]}
        return len(found) == 3 and all(map(is_ready, found.values())) and listed == set(found)

    until(look, "three controllers are ready", timeout_s)


def decide_at_home() -> None:
    """Has the controller decide whose machine is never cut off."""
    homes = kubectl("get", "nodes", "-l", HOME_LABEL, "--output", "jsonpath={.items[*].metadata.name}").split()
    whole()
    at_home = [name for name, pod in controller_pods().items() if pod["spec"]["nodeName"] in homes]
    if not at_home:
        raise Failed(f"no controller runs on {', '.join(homes)}")
    if active() not in at_home:
        in_namespace("exec", CLIENTS, "--", "strandline", "controller", "hand-over", "--to", at_home[0])
        until(lambda: _active() == at_home[0], f"{at_home[0]} decides", 60)


def create_topic(name: str) -> None:
    """A decision: returns when it is durable.

    Raises:
        Failed: it was refused, or took longer than the command waits.
    """
    in_namespace("exec", CLIENTS, "--", "strandline", "topic", "create", name, "--partitions", "1")
