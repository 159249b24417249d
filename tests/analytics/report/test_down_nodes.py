"""Until when a node counts as down in a picture."""

from __future__ import annotations

from reported_material import BEGIN_US, event

from strandline_analytics.timeline.states import downs


def test_a_removed_node_is_not_down_any_more() -> None:
    """A node is down from its fence to its return or its removal, and otherwise to the end of what is shown."""
    reported = [
        event("NODE_SESSION", at_ms, plane="node", subject_node_id=node_id, phase=phase, cause="requested")
        for at_ms, node_id, phase in [
            (0, 1, "fence"),
            (0, 2, "fence"),
            (0, 3, "fence"),
            (5, 1, "unfence"),
            (7, 2, "unregister"),
        ]
    ]
    found = {down.node_id: (down.t1 - BEGIN_US) // 1_000 for down in downs(reported, BEGIN_US + 90_000)}

    assert found == {1: 5, 2: 7, 3: 90}
