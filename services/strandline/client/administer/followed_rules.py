"""The rules of a cluster for a process that has no metadata of it and keeps to them as nodes do (C105).

Invariant: before the first answer nothing is permitted; without an answer the last rules count.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from strandline.client.admin import Admin
from strandline.client.errors import ClusterUnreachable
from strandline.client.log import RetryLog
from strandline.core.errors import Refused
from strandline.core.permissions import Acls
from strandline.rpc.tls import TlsWrong

_EVERY_S = 0.5
_PATIENCE_MS = 5_000


class FollowedRules:
    """Rules that are asked for again and again. Its identity may DESCRIBE the cluster, or is an administrator's."""

    def __init__(self, bootstrap: str, **tls: Any) -> None:
        """``tls``: the three files, as of `Admin`."""
        self._acls = Acls()
        self._bootstrap = bootstrap
        self._tls = tls
        self._retries = RetryLog("asking for the rules of who may do what")

    def now(self) -> Acls:
        """The last that were heard of."""
        return self._acls

    async def follow_forever(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                async with Admin(self._bootstrap, timeout_ms=_PATIENCE_MS, **self._tls) as admin:
                    while True:
                        rules = tuple(await admin.describe_acls())
                        self._retries.worked()
                        # Rules that are the same keep what was compiled of them.
                        if rules != self._acls.rules:
                            self._acls = Acls(rules)
                        await asyncio.sleep(_EVERY_S)
            except (ClusterUnreachable, Refused, TlsWrong) as error:
                # The certificate is read again with each `Admin`, and may be half written.
                self._retries.failed(time.monotonic() * 1000, str(error))
            await asyncio.sleep(_EVERY_S)
