"""The objects that deploy/kubernetes renders to, and the parts of them that tests need.

Invariant: the tests use the output of `kubectl kustomize`, never its source files.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (ROOT / "overlays").iterdir() if (path / "kustomization.yaml").exists())
COMPONENTS = sorted(path.name for path in (ROOT / "components").iterdir())
EVERYTHING = "everything"
"""The local overlay with all components, those that no overlay of ours uses included."""
RENDERED = [*OVERLAYS, EVERYTHING]
_WITH_TLS = ("tls", "etcd-tls", "etcd-cert-manager", "scale-in-tls")
SCALE_IN = {"name": "strandline-scale-in", "literals": ["NODE=3", "THROTTLE=50MB"]}
"""What an overlay with the component scale-in says."""
SEVERAL = ["production", EVERYTHING]
"""Those with several controllers."""
NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
# Kinds of third-party operators, for which Kubernetes has no schema.
FOREIGN = frozenset({"Certificate", "Issuer", "PodMonitor", "ServiceMonitor", "ScheduledSparkApplication"})

Object = dict[str, Any]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@functools.cache
def objects(name: str) -> tuple[Object, ...]:
    """Every object of an overlay, or of all of them."""
    if name != EVERYTHING:
        return render(ROOT / "overlays" / name)
    with tempfile.TemporaryDirectory() as folder:
        # Bases are named by relative paths only.
        up = Path(os.path.relpath(ROOT, os.path.realpath(folder)))
        # Local has the first two; the others are the production overlay's, and need what local does not have.
        used = [part for part in COMPONENTS if part not in ("analytics", "console", *_WITH_TLS)]
        content = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "strandline",
            "resources": [str(up / "overlays" / "local")],
            "components": [str(up / "components" / part) for part in used],
            "configMapGenerator": [SCALE_IN],
        }
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(content))
        return render(Path(os.path.realpath(folder)))


def upward(folder: str) -> Path:
    """The way from a folder to deploy/kubernetes."""
    return Path(os.path.relpath(ROOT, os.path.realpath(folder)))


def render(folder: Path) -> tuple[Object, ...]:
    """Every object of a kustomization."""
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(name: str, *kinds: str) -> list[Object]:
    """The objects of some kinds."""
    return [each for each in objects(name) if each["kind"] in kinds]


def one(name: str, kind: str, called: str) -> Object:
    """The object of this kind and name."""
    (found,) = [each for each in of_kind(name, kind) if each["metadata"]["name"] == called]
    return found


def workloads(name: str) -> list[tuple[Object, Object]]:
    """Every workload with its pod template."""
    found = []
    for each in of_kind(name, "StatefulSet", "Deployment", "Job"):
        found.append((each, each["spec"]["template"]))
    for each in of_kind(name, "CronJob"):
        found.append((each, each["spec"]["jobTemplate"]["spec"]["template"]))
    return found


def containers(name: str) -> Iterator[tuple[str, Object, Object]]:
    """Every container, those that run first included, with the name of its workload and its pod's spec."""
    for workload, template in workloads(name):
        for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
            yield workload["metadata"]["name"], template["spec"], container


def pods_of(name: str, stateful: str) -> list[str]:
    """The names that the pods of a StatefulSet have behind its Service, which they are reached by."""
    spec = one(name, "StatefulSet", stateful)["spec"]
    return [f"{stateful}-{number}.{spec['serviceName']}" for number in range(spec["replicas"])]


def variables(name: str, container: Object) -> dict[str, str]:
    """The variables of a container in order; those that come from fields of the pod as `field:PATH`."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found.update(one(name, "ConfigMap", source["configMapRef"]["name"])["data"])
    for entry in container.get("env", []):
        found[entry["name"]] = entry.get("value", f"field:{_field(entry)}")
    return found


def _field(entry: Object) -> str:
    return str(entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", ""))


def matches(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector selects a pod with these labels."""
    wanted = selector.get("matchLabels", {}).items()
    expressions = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in expressions), expressions
    return all(labels.get(key) == value for key, value in wanted) and all(
        labels.get(each["key"]) in each["values"] for each in expressions
    )
