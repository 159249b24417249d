"""What frees etcd of NOSPACE: the three commands that an operator runs, with their values filled in.

Nothing here runs them: etcd may be shared, a member answers nothing while it is defragmented (etcd #20115), and an
alarm that is disarmed without space comes back (etcd #9992).
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.core.messages import Endpoint
from strandline.rpc.channels import target


def remedy(members_leader_last: Sequence[Endpoint], revision: int) -> tuple[str, str, str]:
    """Compact, defragment one member after the other, disarm; options for TLS or a user are the operator's to add."""
    everywhere = ",".join(target(member) for member in members_leader_last)
    return (
        f"etcdctl --endpoints={everywhere} compact {revision}",
        f"etcdctl --endpoints={everywhere} --command-timeout=60s defrag",
        f"etcdctl --endpoints={everywhere} alarm disarm",
    )
