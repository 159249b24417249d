"""What the manifests prevent: harm to pods by others, to others by pods, to data by an operator's command."""

from __future__ import annotations

from typing import Any

import kustomized
import pytest
from kustomized import RENDERED, SEVERAL, Object, containers, matches, of_kind, one, workloads

pytestmark = kustomized.needs_kubectl

MEBI = {"Mi": 1, "Gi": 1024}


def _labels(name: str) -> dict[str, dict[str, str]]:
    """The labels of every workload's pods."""
    return {workload["metadata"]["name"]: template["metadata"]["labels"] for workload, template in workloads(name)}


def _mebibytes(quantity: str) -> int:
    return int(quantity[:-2]) * MEBI[quantity[-2:]]


@pytest.mark.parametrize("name", RENDERED)
def test_every_pod_is_without_privileges(name: str) -> None:
    """Not root, a read-only root filesystem, no capability, the runtime's seccomp profile, no token of Kubernetes."""
    for workload, spec, box in containers(name):
        pod, own = spec["securityContext"], box["securityContext"]
        assert pod["runAsNonRoot"] and pod["runAsUser"] == 10001 and pod["runAsGroup"] == 10001, workload
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, workload
        assert own["readOnlyRootFilesystem"] and not own["allowPrivilegeEscalation"], workload
        assert own["capabilities"] == {"drop": ["ALL"]}, workload
        assert spec["automountServiceAccountToken"] is False, workload


@pytest.mark.parametrize("name", RENDERED)
def test_services_do_not_turn_up_as_settings(name: str) -> None:
    """A Service named strandline would put STRANDLINE_PORT and others into every pod's environment."""
    for workload, spec, _ in containers(name):
        assert spec["enableServiceLinks"] is False, workload


@pytest.mark.parametrize("name", RENDERED)
def test_every_container_says_what_it_needs(name: str) -> None:
    """Requests of both, a limit of memory that is not below the request, and none of CPU, which would only throttle."""
    for workload, _, box in containers(name):
        requests, limits = box["resources"]["requests"], box["resources"]["limits"]
        assert set(requests) == {"cpu", "memory"}, workload
        assert set(limits) == {"memory"}, workload
        assert _mebibytes(requests["memory"]) <= _mebibytes(limits["memory"]), workload


@pytest.mark.parametrize("name", RENDERED)
def test_selectors_select_their_own_pods_and_no_others(name: str) -> None:
    """A workload's selector matches its template and no other workload's."""
    labels = _labels(name)
    for workload, _ in workloads(name):
        if workload["kind"] in ("CronJob", "Job"):
            continue
        own = workload["metadata"]["name"]
        assert [each for each, found in labels.items() if matches(workload["spec"]["selector"], found)] == [own]


@pytest.mark.parametrize("name", RENDERED)
def test_every_service_reaches_a_port_that_is_there(name: str) -> None:
    """Each Service selects the pods of one workload, and every port that it names is one of theirs."""
    labels = _labels(name)
    ports = {owner: {port["name"] for port in box.get("ports", [])} for owner, _, box in containers(name)}
    for service in of_kind(name, "Service"):
        (owner,) = [
            each for each, found in labels.items() if matches({"matchLabels": service["spec"]["selector"]}, found)
        ]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports[owner]


@pytest.mark.parametrize("name", RENDERED)
def test_nodes_are_addressed_one_by_one(name: str) -> None:
    """The StatefulSets' Services are headless and name pods that are not ready; none balances calls to data nodes."""
    labels = _labels(name)["strandline-replica"]
    for stateful in of_kind(name, "StatefulSet"):
        governing = one(name, "Service", stateful["spec"]["serviceName"])["spec"]
        assert governing["clusterIP"] == "None" and governing["publishNotReadyAddresses"] is True
    balancing = [each for each in of_kind(name, "Service") if each["spec"].get("clusterIP") != "None"]
    assert [each for each in balancing if matches({"matchLabels": each["spec"]["selector"]}, labels)] == []


@pytest.mark.parametrize("name", RENDERED)
def test_one_pod_at_a_time_may_be_taken(name: str) -> None:
    """Each StatefulSet of several pods has a budget, which selects nothing else and lets one of them go."""
    guarded = []
    for budget in of_kind(name, "PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1
        (selected,) = [each for each, found in _labels(name).items() if matches(budget["spec"]["selector"], found)]
        guarded.append(selected)
    several = [each["metadata"]["name"] for each in of_kind(name, "StatefulSet") if each["spec"]["replicas"] > 1]

    assert sorted(guarded) == sorted(several)
    assert "strandline-replica" in several
    assert ("strandline-controller" in several) == ("strandline-etcd" in several) == (name in SEVERAL)


@pytest.mark.parametrize("name", RENDERED)
def test_nodes_start_together_and_roll_one_by_one(name: str) -> None:
    """Parallel, or a full stop may never start again; RollingUpdate, so that a change waits for each node."""
    for stateful in ("strandline-replica", *(["strandline-etcd"] if name in SEVERAL else [])):
        spec = one(name, "StatefulSet", stateful)["spec"]
        assert spec["podManagementPolicy"] == "Parallel"
        assert spec["updateStrategy"] == {"type": "RollingUpdate"}


@pytest.mark.parametrize("name", RENDERED)
def test_disks_outlive_what_used_them(name: str) -> None:
    """Neither deleting nor scaling a StatefulSet deletes a volume; each has one, mounted where the data is."""
    for stateful in of_kind(name, "StatefulSet"):
        spec = stateful["spec"]
        assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
        (claim,) = spec["volumeClaimTemplates"]
        (box,) = spec["template"]["spec"]["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in box["volumeMounts"]}
        place = "/var/lib/etcd" if box["name"] == "etcd" else "/var/lib/strandline"
        assert mounts[claim["metadata"]["name"]] == place


@pytest.mark.parametrize("name", RENDERED)
def test_every_mount_has_its_volume(name: str) -> None:
    """A mount without a volume, or a claim that is never created, is a pod that never starts."""
    claims = {each["metadata"]["name"] for each in of_kind(name, "PersistentVolumeClaim")}
    made = {
        each["metadata"]["name"]: {claim["metadata"]["name"] for claim in each["spec"]["volumeClaimTemplates"]}
        for each in of_kind(name, "StatefulSet")
    }
    for workload, spec, box in containers(name):
        volumes = {each["name"]: each for each in spec.get("volumes", [])}
        mounted = {mount["name"] for mount in box.get("volumeMounts", [])}
        assert mounted == set(volumes) | made.get(workload, set()), workload
        used = {each["persistentVolumeClaim"]["claimName"] for each in volumes.values() if _is_claim(each)}
        assert used <= claims, workload


def _is_claim(volume: Object) -> bool:
    return "persistentVolumeClaim" in volume


@pytest.mark.parametrize(
    ("name", "stateful"),
    [
        ("local", "strandline-replica"),
        ("production", "strandline-replica"),
        ("production", "strandline-controller"),
        ("production", "strandline-etcd"),
    ],
)
def test_pods_lie_on_machines_of_their_own(name: str, stateful: str) -> None:
    """The scheduler rejects two of a kind on one machine, and they are spread over zones."""
    spec = one(name, "StatefulSet", stateful)["spec"]["template"]
    spread: dict[str, Any] = {each["topologyKey"]: each for each in spec["spec"]["topologySpreadConstraints"]}

    assert set(spread) == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
    assert spread["kubernetes.io/hostname"]["whenUnsatisfiable"] == "DoNotSchedule"
    assert all(matches(each["labelSelector"], spec["metadata"]["labels"]) for each in spread.values())


@pytest.mark.parametrize("name", RENDERED)
def test_who_may_dial_which_port(name: str) -> None:
    """Nodes and controllers have a port, clients and Prometheus one each, etcd one for controllers; others none."""
    labels = _labels(name)
    opened: dict[str, set[str]] = {}
    for policy in of_kind(name, "NetworkPolicy"):
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        selected = {each for each, found in labels.items() if matches(policy["spec"]["podSelector"], found)}
        of_etcd = policy["metadata"]["name"] == "strandline-etcd"
        assert (
            selected == {"strandline-etcd"} if of_etcd else {"strandline-replica", "strandline-controller"} <= selected
        )
        for rule in policy["spec"]["ingress"]:
            for port in rule["ports"]:
                opened[port["port"]] = {each for peer in rule["from"] for each in _admitted(peer, labels)}

    assert opened.pop("internal") == {"strandline-replica", "strandline-controller"}
    assert opened.pop("metrics") == set()
    assert opened.pop("clients") == set(labels)
    assert opened == ({"etcd": {"strandline-controller"}, "etcd-peers": {"strandline-etcd"}} if name in SEVERAL else {})


@pytest.mark.parametrize("name", RENDERED)
def test_no_pod_is_without_a_policy(name: str) -> None:
    """A pod that no policy selects can be dialled by everybody, at every port."""
    policies = of_kind(name, "NetworkPolicy")
    open_to_all = [
        each
        for each, found in _labels(name).items()
        if not any(matches(policy["spec"]["podSelector"], found) for policy in policies)
    ]

    assert open_to_all == []


def _admitted(peer: Object, labels: dict[str, dict[str, str]]) -> list[str]:
    """The workloads of this namespace that a peer of a policy admits."""
    if "namespaceSelector" in peer:
        return []
    return [each for each, found in labels.items() if matches(peer["podSelector"], found)]


@pytest.mark.parametrize("name", RENDERED)
def test_the_namespace_refuses_what_the_manifests_promise_not_to_do(name: str) -> None:
    """Kubernetes itself enforces pod security, at its strictest level."""
    (namespace,) = of_kind(name, "Namespace")

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", RENDERED)
def test_labels_say_what_everything_is(name: str) -> None:
    """Every workload's pods carry name, component and the whole they belong to."""
    for workload, template in workloads(name):
        assert template["metadata"]["labels"][kustomized.NAME] == "strandline"
        assert template["metadata"]["labels"][kustomized.COMPONENT] in workload["metadata"]["name"]
