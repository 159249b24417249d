"""docs/CLIENT.md names every error of the client; tests/cluster/test_client_page.py runs what it shows."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from strandline import client

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "CLIENT.md").read_text()


def test_the_page_has_every_error() -> None:
    """Everything that is exported to be caught is in the table of what is raised."""
    table = PAGE.partition("### What is raised")[2].partition("## ")[0]
    errors = {
        name
        for name in client.__all__
        if inspect.isclass(one := getattr(client, name)) and issubclass(one, BaseException)
    }
    named = set(re.findall(r"`(\w+)`", table))

    assert {"Refused", "TopicDeleted"} <= errors <= named
