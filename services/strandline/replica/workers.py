"""What the workers of one machine are: data nodes of their own, with ids, ports and directories that follow a rule.

Worker k of N, from 0, has the id ``node_id`` + k, every port that is set plus k, the directory ``worker-k`` below
``data_dir``, and the rack of the machine. All other settings are the same for all of them. In the files of a
certificate, ``{node_id}`` is its id.

Invariant: no worker of a machine has another rack than its neighbours, so that a partition with as many racks as
replicas has no two replicas on one machine (`core.placement`).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from strandline.replica.settings import ReplicaSettings
from strandline.rpc.channels import parse_endpoint
from strandline.storage.directory import META_NAME

_PORTS = ("bind", "internal_bind", "health_bind", "metrics_bind", "advertise", "internal_advertise")
_LISTENING = _PORTS[:4]
_CERTIFICATES = ("tls_cert", "tls_key")
_ID = "{node_id}"
_LAST_PORT = 65_535


class WorkersWrong(Exception):
    """The settings do not fit several workers; the sentence names the setting, the rule and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker: the settings in which it differs from what the supervisor was given."""

    node_id: int
    directory: Path
    settings: dict[str, str]


def workers_of(settings: ReplicaSettings) -> list[Worker]:
    """The workers that settings ask for.

    Raises:
        WorkersWrong: their ports would meet, a certificate would be shared, or the directory holds something else.
    """
    _check_ports(settings)
    _check_certificates(settings)
    _check_directory(settings.data_dir, settings.workers)
    return [_worker(settings, number) for number in range(settings.workers)]


def single_node_refusal(data_dir: Path) -> str:
    """Why one node may not use a directory: it holds workers. Empty if it may."""
    held = _workers_in(data_dir)
    if not held:
        return ""
    return (
        f"{data_dir} holds the directories of {len(held)} workers ({held[0].name}, ...), and one node would begin "
        f"with nothing beside them. Start it with --workers {_number(held[-1]) + 1}, or give another --data-dir"
    )


def _worker(settings: ReplicaSettings, number: int) -> Worker:
    node_id = settings.node_id + number
    directory = settings.data_dir / f"worker-{number}"
    own = {
        "workers": "1",
        "node_id": str(node_id),
        "data_dir": str(directory),
        "rack": settings.rack or socket.gethostname(),
    }
    own |= {name: _moved(value, number) for name in _PORTS if (value := getattr(settings, name))}
    own |= {name: value.replace(_ID, str(node_id)) for name in _CERTIFICATES if (value := getattr(settings, name))}
    return Worker(node_id=node_id, directory=directory, settings=own)


def _port(text: str) -> int:
    """The port that an address names; 0 where the kernel chooses it, or the bound one is meant."""
    named = re.search(r":(\d+)$", text)
    return int(named.group(1)) if named else 0


def _moved(text: str, by: int) -> str:
    port = _port(text)
    return f"{text.rpartition(':')[0]}:{port + by}" if port else text


def _check_ports(settings: ReplicaSettings) -> None:
    first = {name: port for name in _PORTS if (port := _port(getattr(settings, name)))}
    for name, port in first.items():
        if port + settings.workers - 1 > _LAST_PORT:
            raise WorkersWrong(
                f"setting {name}: worker k listens on port {port} + k, and {settings.workers} workers would go beyond "
                f"{_LAST_PORT}; give a lower port or fewer workers"
            )
    hosts = {name: parse_endpoint(getattr(settings, name)).host for name in first if name in _LISTENING}
    for one, other in _pairs(sorted(hosts, key=lambda name: first[name])):
        if first[other] - first[one] < settings.workers and _may_meet(hosts[one], hosts[other]):
            raise WorkersWrong(
                f"settings {one} and {other}: {settings.workers} workers listen on ports {first[one]} to "
                f"{first[one] + settings.workers - 1}, among them {first[other]}; put {settings.workers} or more "
                "between them"
            )


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    return ((one, other) for place, one in enumerate(names) for other in names[place + 1 :])


def _may_meet(one: str, other: str) -> bool:
    return one == other or bool({one, other} & {"0.0.0.0", "::", "*"})


def _check_certificates(settings: ReplicaSettings) -> None:
    for name in _CERTIFICATES:
        value = getattr(settings, name)
        if value and _ID not in value:
            raise WorkersWrong(
                f"setting {name}: a certificate names one node, and {settings.workers} workers are as many nodes; "
                f"write {_ID} where the id stands in the names of their files, for example certs/node-{_ID}/tls.crt"
            )


def _check_directory(data_dir: Path, workers: int) -> None:
    if (data_dir / META_NAME).exists():
        raise WorkersWrong(
            f"setting data_dir: {data_dir} is the directory of one node, and workers have directories below it; "
            "give another one, and let the replicas of the old node move (docs/OPERATIONS.md, Workers)"
        )
    left = [path for path in _workers_in(data_dir) if _number(path) >= workers]
    if left:
        raise WorkersWrong(
            f"setting workers: {left[-1]} holds a node that {workers} workers would not start, and what it replicates "
            f"would lack a replica; start {_number(left[-1]) + 1}, or, if no partition is placed on "
            "that node, remove it (strandline node remove) and its directory (docs/OPERATIONS.md, Workers)"
        )


def _workers_in(data_dir: Path) -> list[Path]:
    found = (path for path in data_dir.glob("worker-*") if (path / META_NAME).exists())
    return sorted((path for path in found if path.name.removeprefix("worker-").isdecimal()), key=_number)


def _number(path: Path) -> int:
    return int(path.name.removeprefix("worker-"))
