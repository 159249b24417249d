"""What the metadata store compares before it writes: the rules of etcd's transactions, for every simulated store (C7).

Invariant: a key's create revision is the revision of the transaction that put it while it was absent; a put over a
key keeps it (C3). A write is made when, and only when, everything it compares is so at that moment.
"""

from __future__ import annotations

from strandline.core.reigns.events import Head, Holder


def may_write(key: Holder | None, token: int) -> bool:
    """Whether a part or a snapshot of a reign is put, or its log deleted: ``create_revision(active) == token``."""
    return key is not None and key.token == token


def may_append(key: Holder | None, head: Head | None, token: int, after: int) -> bool:
    """Whether a batch is put: ``create_revision(active) == token`` and ``mod_revision(head) == after``."""
    return may_write(key, token) and (0 if head is None else head.revision) == after


def key_after_taking(key: Holder | None, token: int, taker: Holder) -> Holder | None:
    """The election key after a taking by ``taker``: deleted if ``create_revision(active) == token``, else as it was.

    ``taker`` gets nothing by it: a put over the key would keep the create revision, and both would hold one token.
    """
    return None if may_write(key, token) else key


def put_key(key: Holder | None, wanted: Holder, revision: int) -> Holder | None:
    """The election key after a campaign, ``create_revision(active) == 0``; None: it was there, and nothing is put."""
    return None if key is not None else wanted._replace(token=revision)
