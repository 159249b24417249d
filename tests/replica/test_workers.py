"""The workers of a machine: which ids, ports, directories and racks they have, and what is refused."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from strandline.node.settings import ReplicaSettings
from strandline.node.workers import Worker, WorkersWrong, single_node_refusal, workers_of


def settings(data_dir: Path, **given: Any) -> ReplicaSettings:
    """Settings of two workers, from node id 10, with what is given."""
    values = {"node_id": 10, "data_dir": data_dir, "controllers": "127.0.0.1:9092", "workers": 2, "insecure": True}
    return ReplicaSettings.model_validate(values | given)


def own(data_dir: Path, **given: Any) -> list[Worker]:
    """The workers of such settings."""
    return workers_of(settings(data_dir, **given))


def hold_a_node(directory: Path) -> None:
    """Let a directory look like that of a node."""
    directory.mkdir(parents=True)
    (directory / "meta.properties").write_text("version=2\n")


def test_ids_and_directories_follow_the_rule(tmp_path: Path) -> None:
    """Worker k has the id node_id + k and the directory worker-k, and starts no workers itself."""
    workers = own(tmp_path, workers=3)

    assert [worker.node_id for worker in workers] == [10, 11, 12]
    assert [worker.settings["node_id"] for worker in workers] == ["10", "11", "12"]
    assert [worker.settings["data_dir"] for worker in workers] == [str(tmp_path / f"worker-{k}") for k in range(3)]
    assert {worker.settings["workers"] for worker in workers} == {"1"}


def test_ports_that_are_set_count_up(tmp_path: Path) -> None:
    """Worker k listens on every port that is set plus k, and names the same in what it advertises."""
    ports = {"bind": "127.0.0.1:9100", "internal_bind": "127.0.0.1:9200", "metrics_bind": "127.0.0.1:9300"}
    second = own(tmp_path, **ports, advertise="one.example:9100", internal_advertise="one.example")[1].settings

    assert [second[name] for name in ports] == ["127.0.0.1:9101", "127.0.0.1:9201", "127.0.0.1:9301"]
    assert second["advertise"] == "one.example:9101"
    assert second["internal_advertise"] == "one.example"


def test_ports_that_the_kernel_chooses_stay_so(tmp_path: Path) -> None:
    """Port 0 is port 0 for every worker."""
    assert {worker.settings["bind"] for worker in own(tmp_path, bind="127.0.0.1:0")} == {"127.0.0.1:0"}


def test_all_workers_have_the_rack_of_the_machine(tmp_path: Path) -> None:
    """The rack is the one that was given, and the host's name where none was."""
    assert [worker.settings["rack"] for worker in own(tmp_path, rack="m1")] == ["m1", "m1"]
    assert [worker.settings["rack"] for worker in own(tmp_path)] == [socket.gethostname()] * 2


def test_each_worker_has_its_own_certificate(tmp_path: Path) -> None:
    """{node_id} in the names of the files is the worker's id."""
    tls = {"tls_cert": "certs/{node_id}.pem", "tls_key": "certs/{node_id}.key", "tls_ca": "ca.pem", "insecure": False}
    second = own(tmp_path, **tls)[1].settings

    assert (second["tls_cert"], second["tls_key"]) == ("certs/11.pem", "certs/11.key")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bind": "127.0.0.1:9100", "internal_bind": "127.0.0.1:9101"}, "settings bind and internal_bind"),
        ({"bind": "0.0.0.0:9100", "advertise": "a", "metrics_bind": "127.0.0.1:9101"}, "bind and metrics_bind"),
        ({"bind": "127.0.0.1:65535"}, "setting bind: worker k listens on port 65535 + k"),
        ({"tls_cert": "one.pem", "tls_key": "one.key", "tls_ca": "ca", "insecure": False}, "setting tls_cert"),
    ],
)
def test_what_workers_would_share_is_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    """Ports that would meet, ports that there are not, and one certificate for several nodes are refused by name."""
    with pytest.raises(WorkersWrong, match=re.escape(said)) as refused:
        own(tmp_path, **given)
    assert "\n" not in str(refused.value)


def test_ports_far_enough_apart_are_taken(tmp_path: Path) -> None:
    """As many ports as workers between two of them are enough."""
    assert len(own(tmp_path, bind="127.0.0.1:9100", internal_bind="127.0.0.1:9102")) == 2


def test_the_directory_of_one_node_is_refused(tmp_path: Path) -> None:
    """What one node wrote would lie beside the workers, and nobody would serve it."""
    hold_a_node(tmp_path / "data")

    with pytest.raises(WorkersWrong, match="is the directory of one node"):
        own(tmp_path / "data")


def test_fewer_workers_than_there_were_are_refused(tmp_path: Path) -> None:
    """A worker that would not start again leaves its partitions with one replica less, so its number is named."""
    for number in range(3):
        hold_a_node(tmp_path / f"worker-{number}")

    with pytest.raises(WorkersWrong, match="worker-2 holds a node that 2 workers would not start"):
        own(tmp_path)
    assert len(own(tmp_path, workers=3)) == 3
    assert len(own(tmp_path, workers=4)) == 4


def test_one_node_is_refused_where_workers_were(tmp_path: Path) -> None:
    """One node beside the directories of workers would begin with nothing, under an id that held records."""
    assert single_node_refusal(tmp_path) == ""
    hold_a_node(tmp_path / "worker-0")
    hold_a_node(tmp_path / "worker-1")

    assert "--workers 2" in single_node_refusal(tmp_path)


@pytest.mark.parametrize("workers", [0, -1, 65])
def test_numbers_of_workers_are_bounded(tmp_path: Path, workers: int) -> None:
    """There is at least one worker, and there are at most 64."""
    with pytest.raises(ValueError, match="workers"):
        settings(tmp_path, workers=workers)
