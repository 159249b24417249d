"""Every overlay against a real API server: a dry run of each object, without creating any.

Invariant: an object is skipped only where the cluster does not know its kind, and then by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from kubectl import Failed, in_namespace, kubectl

OVERLAYS = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "overlays"


def dry_run_all() -> list[str]:
    """One line per overlay.

    Raises:
        Failed: the server rejects an object.
    """
    known = _known_kinds()
    kubectl("apply", "--filename", str(OVERLAYS / "local" / "namespace.yaml"))
    return [_dry_run(folder, known) for folder in sorted(OVERLAYS.iterdir()) if folder.is_dir()]


def _known_kinds() -> set[tuple[str, str]]:
    """(apiVersion, kind) of everything that the cluster serves."""
    lines = kubectl("api-resources", "--no-headers").splitlines()
    return {(words[-3], words[-1]) for words in (line.split() for line in lines) if len(words) >= 4}


def _dry_run(folder: Path, known: set[tuple[str, str]]) -> str:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(kubectl("kustomize", str(folder))))
    served = [each for each in objects if (each["apiVersion"], each["kind"]) in known]
    skipped = [f"{each['kind']}/{each['metadata']['name']}" for each in objects if each not in served]
    said = kubectl("apply", "--dry-run=server", "--filename", "-", given=yaml.safe_dump_all(served))
    if said.count("(server dry run)") != len(served):
        raise Failed(f"{folder.name}: {len(served)} objects, and the server said: {said}")
    left = f"; skipped, their kinds are not here: {', '.join(skipped)}" if skipped else ""
    return f"{folder.name}: {len(served)} objects accepted{left}"


def bind_shared_claim(overlay: Path) -> None:
    """Binds the claim for exports before the pods that use it.

    While it is unbound, a pod's own disk can be bound to a machine which another pod takes before this one gets there:
    the scheduler binds one volume after the other, and local disks do not move.
    """
    objects = [each for each in yaml.safe_load_all(kubectl("kustomize", str(overlay))) if each]
    claims = [each for each in objects if each["kind"] == "PersistentVolumeClaim"]
    kubectl("apply", "--filename", "-", given=yaml.safe_dump_all(claims))
    for claim in claims:
        in_namespace(
            "wait", "--for=jsonpath={.status.phase}=Bound", f"pvc/{claim['metadata']['name']}", "--timeout=60s"
        )
