"""The analytics Job of the overlay, run once on the exports of the services during the test.

Invariant: it is the CronJob's own pod; only its arguments differ, because no hour has closed yet.
"""

from __future__ import annotations

from typing import Any

from kubectl import Failed, get, in_namespace, kubectl, until
from machine import HOME_LABEL
from yaml import safe_dump

JOB = "analytics-once"
_WORDS = ["analytics", "report", "--input", "/exports/state", "--out", "/exports/report.html", "--memory", "1g"]


def run_job(timeout_s: float = 600.0) -> str:
    """Runs the Job to its end; returns its last output.

    Raises:
        Failed: it failed, or did not end in time.
    """
    template = get("cronjob", "strandline-analytics")["spec"]["jobTemplate"]["spec"]
    spec = template["template"]["spec"]
    spec["containers"][0]["args"] = _WORDS
    spec["nodeSelector"] = {HOME_LABEL: "yes"}
    template["backoffLimit"] = 0
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB}, "spec": template}
    in_namespace("apply", "--filename", "-", given=safe_dump(job))
    ended = until(_end, "the analytics Job ends", timeout_s)
    said = in_namespace("logs", f"job/{JOB}", "--tail=3").strip().splitlines()
    if ended != "Complete":
        raise Failed(f"the analytics Job: {ended}: {' | '.join(said)}")
    return said[-1] if said else "nothing"


def _end() -> str | None:
    conditions: list[dict[str, Any]] = get("job", JOB)["status"].get("conditions", [])
    return next((each["type"] for each in conditions if each["type"] in ("Complete", "Failed")), None)


def describe_pod() -> str:
    """The state of the Job's pod, for diagnosis."""
    return kubectl("-n", "strandline", "get", "pods", "-l", f"job-name={JOB}", "-o", "wide")
