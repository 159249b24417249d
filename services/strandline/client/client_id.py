"""Which names a client may have: what a service reads as the first word of the user agent.

Invariant: a name is one word, so that nothing of it is lost between the client and what a service shows of it.
"""

from __future__ import annotations

import re

DEFAULT_CLIENT_ID = "strandline"
_ALLOWED = re.compile(r"[A-Za-z0-9._-]{1,249}")


def parse_client_id(client_id: str) -> str:
    """The name, if it is one (the characters and the length that Kafka allows for names of topics).

    Raises:
        ValueError: it has other characters, none, or more than 249.
    """
    if not _ALLOWED.fullmatch(client_id):
        raise ValueError(f"client_id {client_id!r} must be 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return client_id
