"""docs/CLIENT.md says of the clients what is true; tests/cluster/test_client_page.py runs what it shows."""

from __future__ import annotations

import inspect
import re

from tests.client import signatures_page

from strandline import client

PAGE = signatures_page.PAGE.read_text()


def test_the_page_has_every_signature() -> None:
    """Signatures, defaults and what is said of each are those of the source."""
    assert signatures_page.with_signatures(PAGE) == PAGE, "run: make client-sync"
    for name in signatures_page.CLASSES:
        public = [one for one in vars(getattr(client, name)) if not one.startswith("_")]
        shown = PAGE.partition(f"class {name}")[2].partition("```")[0]
        assert [one for one in public if not re.search(rf"def {one}\(", shown)] == []


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
