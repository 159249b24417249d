"""Where connections are dialled: options that every one needs cannot be forgotten in a third place."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_DIALS = re.compile(r"\b(?:insecure_channel|secure_channel|urlopen|HTTPS?Connection)\(")


def test_channels_are_made_in_two_files() -> None:
    """Ours in rpc/channels.py and those to etcd in its client, neither by a proxy; nothing else dials by HTTP."""
    files = [
        path for folder in ("services", "analytics") for path in (ROOT / folder).rglob("*.py") if "v1" not in path.parts
    ]
    dialling = {str(path.relative_to(ROOT / "services")) for path in files if _DIALS.search(path.read_text())}

    assert dialling == {"strandline/rpc/channels.py", "strandline/etcd/client.py"}
    for name in dialling:
        assert "NO_PROXY" in (ROOT / "services" / name).read_text()
