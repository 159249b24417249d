"""What the shell sees when a command cannot do what was requested."""

from __future__ import annotations

from strandline.cli.failures import EXIT_UNREACHABLE, explain
from strandline.client import NotAController


def test_a_data_node_as_bootstrap_is_a_wrong_option() -> None:
    """An address that is not the controller's ends a command with exit code 2 and names --bootstrap."""
    failure = explain(NotAController(["127.0.0.1:9093"]))

    assert failure is not None
    assert failure.exit_code == EXIT_UNREACHABLE
    assert failure.message.startswith("--bootstrap: 127.0.0.1:9093 is not a controller")
    assert "no answer" not in failure.message
