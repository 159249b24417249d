"""The faults of the pods under load, one function each, and the time that each may take.

Invariant: a check ends with every replica in sync again, so that each begins like the first one.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from typing import Any

from clients import Clients, in_sync, partitions
from controllers import CONTROLLERS, active, another_than, controller_pods, create_topic, whole
from kubectl import (
    CLIENTS,
    NAMESPACE,
    REPLICAS,
    all_ready,
    get,
    in_namespace,
    is_ready,
    kubectl,
    pods,
    strandline,
    until,
)
from machine import HOME_LABEL, OwnCluster
from manifests import empty_node

MOVE_S = 1.0
"""Without acknowledgements, for a leadership that is handed over."""
SESSION_S = 9.0
"""The controller's session time-out, its default."""
LOST_S = SESSION_S + 2.0
"""Without acknowledgements, for a leader that is gone without a word."""


@dataclass(slots=True)
class Outcome:
    """The result of one check."""

    name: str
    unavailable_s: float
    allowed_s: float | None
    facts: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """One line for the terminal and for the page."""
        allowed = f" (allowed {self.allowed_s:g} s)" if self.allowed_s else ""
        reported = "; ".join(
            [f"longest time without an acknowledgement {self.unavailable_s:.2f} s{allowed}", *self.facts]
        )
        wrong = f"; WRONG: {'; '.join(self.failures)}" if self.failures else ""
        return f"{self.name}: {reported}{wrong}"


@dataclass(slots=True)
class Test:
    """The objects that every check needs."""

    cluster: Any
    clients: Clients

    def judged(self, name: str, since_s: float, allowed_s: float | None, *facts: str) -> Outcome:
        """Waits until the load continues everywhere, and measures."""
        until_s = self.clients.acked_since(self.clients.now_s())
        gap_s, index = self.clients.longest_gap_s(since_s, until_s)
        outcome = Outcome(name, gap_s, allowed_s, list(facts))
        if allowed_s is not None and gap_s > allowed_s:
            outcome.failures.append(f"partition {index} had no acknowledgement for {gap_s:.2f} s")
        return outcome


def pod_of(node_id: int) -> str:
    """The pod of a node."""
    return f"{REPLICAS}-{node_id}"


def leader_away_from_home() -> dict[str, Any]:
    """A partition whose leader runs on a machine that can be cut off: not that of clients, names and controller."""
    homes = kubectl("get", "nodes", "-l", HOME_LABEL, "--output", "jsonpath={.items[*].metadata.name}").split()

    def look() -> dict[str, Any] | None:
        found = pods()
        led = [row for row in partitions() if row["leader"] is not None]
        return next((row for row in led if found[pod_of(row["leader"])]["spec"]["nodeName"] not in homes), None)

    # Leadership goes back to the preferred nodes every half a minute.
    return until(look, "a leader away from home", 90)


def replaced(name: str, uid: str, timeout_s: float = 240.0) -> Any:
    """Waits until another pod of this name is ready."""

    def look() -> Any:
        pod = pods().get(name)
        return pod if pod and pod["metadata"]["uid"] != uid and is_ready(pod) else None

    return until(look, f"a new {name} is ready", timeout_s)


def delete_leader(test: Test) -> Outcome:
    """(a) `kubectl delete pod` of a leader."""
    name = pod_of(partitions()[0]["leader"])
    uid = pods()[name]["metadata"]["uid"]
    since_s = test.clients.now_s()
    in_namespace("delete", "pod", name, "--wait=false")
    replaced(name, uid)
    in_sync()
    return test.judged("(a) delete the leader's pod", since_s, MOVE_S, f"{name} replaced and in sync again")


def rolling_restart(test: Test) -> Outcome:
    """(b) `kubectl rollout restart` of all nodes."""
    before = {name: pod["metadata"]["uid"] for name, pod in pods().items()}
    since_s = test.clients.now_s()
    in_namespace("rollout", "restart", f"statefulset/{REPLICAS}")
    in_namespace("rollout", "status", f"statefulset/{REPLICAS}", "--timeout=400s", timeout_s=420)
    took_s = test.clients.now_s() - since_s
    in_sync()
    outcome = test.judged("(b) rolling restart", since_s, MOVE_S, f"{len(before)} pods in {took_s:.0f} s")
    stayed = [name for name, pod in pods().items() if pod["metadata"]["uid"] == before.get(name)]
    outcome.failures += [f"{name} was not restarted" for name in stayed]
    return outcome


def drain(test: Test) -> Outcome:
    """(c) `kubectl drain` of a machine, while the budget prevents that the next node is evicted too."""
    row = leader_away_from_home()
    name = pod_of(row["leader"])
    pod = pods()[name]
    machine, since_s = pod["spec"]["nodeName"], test.clients.now_s()
    drained = ["drain", machine, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s"]
    try:
        kubectl(*drained, "--pod-selector=app.kubernetes.io/component=replica", timeout_s=150)
        refused = _eviction_is_refused(next(pod_of(node) for node in row["replicas"] if pod_of(node) != name))
    finally:
        kubectl("uncordon", machine)
    replaced(name, pod["metadata"]["uid"])
    in_sync()
    outcome = test.judged("(c) drain with the budget", since_s, MOVE_S, f"{name} left {machine} and came back")
    if refused:
        outcome.facts.append("a second eviction was refused meanwhile")
    else:
        outcome.failures.append("a second pod could be evicted while the first was away")
    return outcome


def _eviction_is_refused(name: str) -> bool:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    body = json.dumps(eviction)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    done = subprocess.run(
        ["kubectl", "create", "--raw", path, "-f", "-"], input=body, capture_output=True, text=True, timeout=60
    )
    return bool(done.returncode) and "disruption budget" in done.stderr


def scale_out_and_in(test: Test) -> Outcome:
    """(d) a fourth node, which gets replicas by `rebalance`; then a Job empties it, and it is removed again."""
    since_s = test.clients.now_s()
    in_namespace("scale", f"statefulset/{REPLICAS}", "--replicas=4")
    all_ready(4)
    until(lambda: _states().get(3) == "serving", "node 3 serves", 60)
    racks = sorted({node["rack"] or "none" for node in strandline("node", "list")})
    proposed = strandline("rebalance")
    strandline("rebalance", "--yes")
    until(lambda: not strandline("reassign", "status"), "all moves have ended", 120)
    held = _held_by(3)
    empty_node(3)
    left = _held_by(3)
    in_namespace("scale", f"statefulset/{REPLICAS}", "--replicas=3")
    all_ready(3)
    # Refused until its session has ended.
    until(lambda: in_namespace("exec", CLIENTS, "--", "strandline", "node", "remove", "3"), "node 3 is removed", 60)
    in_namespace("delete", "pvc", "data-strandline-replica-3", "--wait=false")
    in_sync()
    facts = (f"racks {', '.join(racks)}", f"{len(proposed['moves'])} moves proposed, {held} replicas on node 3")
    outcome = test.judged("(d) scale 3 to 4 and back", since_s, MOVE_S, *facts)
    if proposed["submitted"] or not proposed["moves"]:
        outcome.failures.append(f"rebalance proposed {len(proposed['moves'])} moves")
    if not held or left or 3 in _states():
        outcome.failures.append(f"node 3 held {held} replicas, {left} when it was drained; then there was {_states()}")
    return outcome


def _states() -> dict[int, str]:
    return {node["node_id"]: node["state"] for node in strandline("node", "list")}


def _held_by(node_id: int) -> int:
    return sum(node_id in row["replicas"] for row in strandline("topic", "describe"))


def replace_disk(test: Test) -> Outcome:
    """(j) a machine with a leader is lost, and comes back with another disk: the same node, refilled by the others."""
    assert isinstance(test.cluster, OwnCluster)
    row = leader_away_from_home()
    name = pod_of(row["leader"])
    pod = pods()[name]
    machine, since_s = pod["spec"]["nodeName"], test.clients.now_s()
    disk = get("pvc", f"data-{name}")["spec"]["volumeName"]
    with test.cluster.node_lost(machine):
        until(lambda: _led_by_another(row), f"another node leads partition {row['partition']}", 60)
        in_namespace("delete", "pvc", f"data-{name}", "--wait=false")
        in_namespace("delete", "pod", name, "--force", "--grace-period=0")
    replaced(name, pod["metadata"]["uid"])
    in_sync()
    outcome = test.judged("(j) a machine lost, its disk replaced", since_s, LOST_S, f"{name} on {machine} refilled")
    if get("pvc", f"data-{name}")["spec"]["volumeName"] == disk:
        outcome.failures.append(f"{name} has its old disk")
    return outcome


def two_owners(test: Test) -> Outcome:
    """(e) `kubectl delete --force` of a leader: the next process starts before the last one has ended.

    On the test's own cluster the old one hangs, the usual reason for --force: it keeps the directory until SIGKILL.
    """
    name = pod_of(partitions()[0]["leader"])
    uid = pods()[name]["metadata"]["uid"]
    since_s = test.clients.now_s()
    hangs = isinstance(test.cluster, OwnCluster) and test.cluster.freeze(uid) > 0
    in_namespace("delete", "pod", name, "--force", "--grace-period=0")
    pod = replaced(name, uid)
    in_sync()
    status = pod["status"]["containerStatuses"][0]
    ended = status.get("lastState", {}).get("terminated")
    met = f"the new process met the old one and ended with {ended['exitCode']}" if ended else "no process met another"
    facts = [f"{name} {'hung and was ' if hangs else ''}forced", f"{met}, {status['restartCount']} restarts"]
    if ended:
        facts.append(f"its line: {_last_line(name)}")
    return test.judged("(e) two processes, one volume", since_s, LOST_S, *facts)


def _last_line(name: str) -> str:
    said = in_namespace("logs", name, "--previous", "--tail=1").strip()
    return re.sub(r"/\S*/", "", said)[:160]


def kill_active(test: Test) -> Outcome:
    """(h) the pod of the controller that decides is killed; another one decides, and acknowledgements go on."""
    name = active()
    uid = controller_pods()[name]["metadata"]["uid"]
    since_s = test.clients.now_s()
    in_namespace("delete", "pod", name, "--force", "--grace-period=0")
    successor = another_than(name)
    seen_s = test.clients.now_s() - since_s
    create_topic("after-the-kill")
    _controller_is_back(name, uid)
    facts = (f"{successor} instead of {name} was seen after {seen_s:.1f} s", "a topic was created", f"{name} came back")
    return test.judged("(h) kill the active controller", since_s, MOVE_S, *facts)


def drain_active(test: Test) -> Outcome:
    """(i) `kubectl drain` of the active controller's machine, for controllers; the budget keeps the next one."""
    name = active()
    pod = controller_pods()[name]
    machine, since_s = pod["spec"]["nodeName"], test.clients.now_s()
    drained = ["drain", machine, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s"]
    try:
        kubectl(*drained, "--pod-selector=app.kubernetes.io/component=controller", timeout_s=150)
        successor = another_than(name)
        seen_s = test.clients.now_s() - since_s
        refused = _eviction_is_refused(next(each for each in controller_pods() if each != name))
        create_topic("after-the-drain")
    finally:
        kubectl("uncordon", machine)
    _controller_is_back(name, pod["metadata"]["uid"])
    facts = [f"{name} left {machine}", f"{successor} was seen to decide {seen_s:.1f} s after the command"]
    outcome = test.judged("(i) drain the active controller's machine", since_s, MOVE_S, *facts)
    if refused:
        outcome.facts.append("a second eviction was refused meanwhile")
    else:
        outcome.failures.append("a second controller could be evicted while the first was away")
    return outcome


def _controller_is_back(name: str, uid: str) -> None:
    until(
        lambda: name in (found := controller_pods()) and found[name]["metadata"]["uid"] != uid,
        f"a new {name} exists",
        120,
    )
    in_namespace("rollout", "status", f"statefulset/{CONTROLLERS}", "--timeout=180s", timeout_s=200)
    whole()


def lose_machine(test: Test) -> Outcome:
    """(f) a machine with a leader is lost: its kubelet is stopped and its pods are unreachable."""
    assert isinstance(test.cluster, OwnCluster)
    row = leader_away_from_home()
    name = pod_of(row["leader"])
    machine = pods()[name]["spec"]["nodeName"]
    with test.cluster.node_lost(machine):
        since_s = test.clients.now_s()
        led = until(lambda: _led_by_another(row), f"another node leads partition {row['partition']}", 60)
        until(lambda: not _machine_ready(machine), f"Kubernetes notices that {machine} is gone", 90)
        test.clients.acked_since(test.clients.now_s())
    until(lambda: _machine_ready(machine), f"{machine} is ready again", 90)
    all_ready(3)
    in_sync()
    facts = (f"{machine} with {name} lost and back", f"partition {row['partition']} led by node {led} meanwhile")
    return test.judged("(f) a machine lost", since_s, LOST_S, *facts)


def _led_by_another(row: dict[str, Any]) -> str | None:
    now = partitions()[row["partition"]]
    return str(now["leader"]) if now["leader"] not in (None, row["leader"]) else None


def _machine_ready(name: str) -> bool:
    conditions = get("node", name)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def partition_pods(test: Test) -> Outcome:
    """(g) a leader and one of its followers do not reach each other for 30 s; all others reach both."""
    assert isinstance(test.cluster, OwnCluster)
    row = partitions()[0]
    found = pods()
    leader, follower = row["leader"], next(node for node in row["replicas"] if node != row["leader"])
    addresses = [found[pod_of(node)]["status"]["podIP"] for node in (leader, follower)]
    with test.cluster.partitioned(*addresses):
        since_s = test.clients.now_s()
        until(lambda: follower not in partitions()[0]["isr"], "the follower leaves the ISR", 30)
        shrunk_s = test.clients.now_s() - since_s
        until(lambda: test.clients.now_s() > since_s + 30, "30 s have passed", 60)
    in_sync()
    facts = f"nodes {leader} and {follower} cut for 30 s, out of the ISR after {shrunk_s:.1f} s, back in it"
    return test.judged("(g) two pods cut from each other", since_s, LOST_S, facts)
