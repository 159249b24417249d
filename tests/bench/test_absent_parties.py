"""What cannot be had on a machine is named with the reason, and is not an error of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import failover_faults
import pytest
import servers
from parties import NATS, PartyAbsent
from party_kafka import WARMED_GIB, check_space
from plan import KILL, SMOKE, STOP, VANISH, Plan

KAFKA = "Kafka"


@contextmanager
def cannot(reason: str) -> Iterator[object]:
    """A party that is not here."""
    raise PartyAbsent(reason)
    yield None


def test_an_absent_party_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka without its packages is None for every measure, looked for once, and its reason is kept."""
    looked: list[Path] = []

    def kafka_servers(home: Path, _: float) -> object:
        looked.append(home)
        return cannot("javac not installed")

    monkeypatch.setattr(servers, "kafka_servers", kafka_servers)
    with servers.Servers(tmp_path, 180.0, print) as running:
        assert [running.kafka, running.kafka] == [None, None]
        assert running.absent == {KAFKA: "javac not installed"}
    assert len(looked) == 1


def test_a_party_that_was_left_out_is_named(tmp_path: Path) -> None:
    """Without seconds of warming Kafka is not started, and the results say so."""
    with servers.Servers(tmp_path, 0.0, print) as running:
        assert running.kafka is None
        assert running.absent == {KAFKA: "left out of this run"}


@pytest.mark.parametrize(
    ("warm_s", "free_gib", "is_refused"),
    [(180.0, 3, True), (180.0, WARMED_GIB + 1, False), (0.5, 3, False), (0.5, 0, True)],
)
def test_kafka_needs_space_for_its_warming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_s: float, free_gib: float, is_refused: bool
) -> None:
    """A disk that three minutes of warming would fill is named before anything starts; a short one needs little."""
    usage = SimpleNamespace(free=int(free_gib * (1 << 30)))
    monkeypatch.setattr("party_kafka.shutil.disk_usage", lambda _: usage)

    refused = pytest.raises(PartyAbsent, match="GiB free") if is_refused else nullcontext()
    with refused:
        check_space(tmp_path / "not-made-yet", warm_s)


def test_nats_without_its_packages_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is an absence with a reason, not a failed import."""
    from parties import nats_servers

    monkeypatch.setattr("parties.find_spec", lambda _: None)
    with pytest.raises(PartyAbsent, match="extra `bench`"), nats_servers(tmp_path / NATS, sync_always=False):
        pass


def test_a_vanished_address_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root the fault is refused by name; the others need nothing."""
    monkeypatch.setattr("os.geteuid", lambda: 1_000)

    assert "root is needed" in (failover_faults.lacking(VANISH) or "")
    assert failover_faults.lacking(KILL) is None
    assert failover_faults.lacking(STOP) is None


def test_a_smoke_run_has_every_fault_and_measure() -> None:
    """It is short by its numbers, not by leaving something out."""
    whole = Plan()

    assert {each.fault for each in SMOKE.faults} == {each.fault for each in whole.faults} == {KILL, STOP, VANISH}
    assert all((SMOKE.shapes, SMOKE.readers, SMOKE.idle_partitions, SMOKE.consumed_records))
