"""The order of the demo's events, without processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from strandline.cli.demo import story
from strandline.cli.demo.story import Story
from strandline.cli.failures import CommandFailed


async def test_a_kill_without_an_election_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo goes on to the killed node's return only once every partition that it led has a new leader."""
    happened: list[str] = []

    async def until(*_: Any) -> bool:
        return False

    async def start_node(node_id: int) -> None:
        happened.append(f"node-{node_id} is started")

    monkeypatch.setattr(story, "_AHEAD_S", 0)
    nodes = {
        node_id: SimpleNamespace(pid=node_id, pause=lambda: None, resume=lambda: happened.append("resumed"))
        for node_id in (1, 2, 3)
    }
    cluster: Any = SimpleNamespace(
        nodes=nodes, kill_node=lambda node_id: happened.append(f"node-{node_id} is killed"), start_node=start_node
    )
    watch: Any = SimpleNamespace(leads_most=lambda: 2, led_by=lambda _: [0], until=until)
    load: Any = SimpleNamespace(acks=SimpleNamespace(acked=0, is_held=True), until=until)
    corpus: Any = SimpleNamespace(lines=4, partitions=1)
    screen: Any = SimpleNamespace(tell=lambda *_, **__: None)
    scene: Any = SimpleNamespace(services={})

    with pytest.raises(CommandFailed, match="no new leader"):
        await Story(corpus, cluster, screen, scene)._crash_and_return(load, watch)

    assert happened == ["node-2 is killed", "resumed", "resumed"]
