"""The controller's store is copied while it serves, and a cluster that lost the store continues from the copy."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from client_load import Load
from running_cluster import Probe
from settled_logs import assert_settled

from strandline.controller.tools import backup, recover
from strandline.runtime.exit_codes import ExitCode

CLUSTER = {"nodes": 3}


@pytest.mark.timeout(180)
async def test_a_backup_of_a_running_store_is_restored_by_recover(
    probe: Probe, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Copied under load; later the store is lost with a newer topic: recover restores both, with higher epochs."""
    copy, store = tmp_path / "copy.sqlite", probe.local.directory / "controller"
    await probe.create_topic(topic, partitions=2)
    async with Load(probe=probe, topic=topic) as load:
        await load.acked(20)
        made = await asyncio.to_thread(backup.main, ["--data-dir", str(store), "--to", str(copy)])
        await probe.create_topic(f"{topic}-younger")
        await load.acked(20)
        before = await probe.metadata()
        await probe.local.stop()
        for path in store.glob("metadata.sqlite*"):
            path.unlink()
        copy.rename(store / "metadata.sqlite")
        nodes = [str(probe.local.directory / f"node-{node_id}") for node_id in probe.local.nodes]
        recovered = await asyncio.to_thread(recover.main, ["--data-dir", str(store), *nodes])
        await probe.everybody()
        await probe.in_sync(topic)
        await load.acked(20)
        await load.finish()
    after = await probe.metadata()
    await assert_settled(probe, topic)

    assert (made, recovered) == (ExitCode.CLEAN, ExitCode.CLEAN)
    assert f"copied cluster {before.cluster_id} at metadata offset" in capfd.readouterr().out
    assert {each.topic_id for each in after.topics} >= {each.topic_id for each in before.topics}
    assert after.controller_epoch > before.controller_epoch
    assert after.metadata_offset > before.metadata_offset


async def test_a_stopped_store_is_copied_too(probe: Probe, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a controller the command reads the store itself; a second run does not overwrite the copy."""
    words = ["--data-dir", str(probe.local.directory / "controller"), "--to", str(tmp_path / "copy.sqlite")]
    await probe.local.controller.stop(15_000)

    first = await asyncio.to_thread(backup.main, words)
    second = await asyncio.to_thread(backup.main, words)
    await probe.everybody()

    assert (first, second) == (ExitCode.CLEAN, ExitCode.FAILED)
    assert "exists; name another file" in capfd.readouterr().err
    assert os.listdir(tmp_path) == ["copy.sqlite"]


def test_a_directory_without_a_store_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A wrong directory is reported in one line, and no store is created in it."""
    code = backup.main(["--data-dir", str(tmp_path), "--to", str(tmp_path / "copy")])

    assert code is ExitCode.FAILED
    assert capfd.readouterr().err.startswith(f"strandline: no backup was made: {tmp_path} holds no metadata.sqlite")
    assert os.listdir(tmp_path) == []
