"""Verifies a node's claim that it was sent a position of the controller's history (M72).

Invariant: only a controller with the secret of this store can make a proof, and it makes one only for a position that
is durable. A valid proof of a position beyond the store's own therefore shows that the store forgot something; a
claim without one shows nothing, because any process may write a large number.
"""

from __future__ import annotations

import hmac

from strandline.core.messages import MetadataImage, PositionProof
from strandline.core.types import NodeEpoch, NodeId


def prove(
    secret: str,
    *,
    node_id: NodeId,
    node_epoch: NodeEpoch,
    controller_epoch: int,
    metadata_offset: int,
    reign_id: str = "",
) -> PositionProof:
    """The proof that is sent with an image to a node. ``secret`` is the store's, in hexadecimal digits."""
    mac = _mac(secret, node_id, node_epoch, controller_epoch, metadata_offset, reign_id)
    return PositionProof(node_epoch, controller_epoch, metadata_offset, mac, reign_id)


def is_proof(secret: str, node_id: NodeId, proof: PositionProof) -> bool:
    """Whether the proof is valid: a controller of this store sent that position to that process."""
    made = _mac(secret, node_id, proof.node_epoch, proof.controller_epoch, proof.metadata_offset, proof.reign_id)
    # In constant time: a caller must not find a valid MAC byte by byte.
    return hmac.compare_digest(made, proof.mac)


def later_of(one: PositionProof | None, other: PositionProof | None) -> PositionProof | None:
    """Of two proofs, the one of the later position."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda proof: (proof.controller_epoch, proof.metadata_offset))


def newest_in(image: MetadataImage) -> PositionProof | None:
    """The latest position that a stored image proves: its own, an answer's, or its registration's."""
    return later_of(image.position, image.registered)


def _mac(
    secret: str, node_id: NodeId, node_epoch: NodeEpoch, controller_epoch: int, metadata_offset: int, reign_id: str
) -> bytes:
    # Joined by a character that no part contains, so the texts of two positions differ. Without a reign id the text is
    # that of earlier releases, so their proofs stay valid.
    numbers = (str(node_id), str(node_epoch), str(controller_epoch), str(metadata_offset))
    text = " ".join((*numbers, reign_id) if reign_id else numbers)
    return hmac.digest(bytes.fromhex(secret), text.encode(errors="surrogatepass"), "sha256")
