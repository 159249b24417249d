"""An issuer of tokens for a run, and clients that show its tokens, which live for a few seconds.

Invariant: a token is signed when a client asks for one, so a busy machine makes none too old to be shown.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import ECAlgorithm

from strandline.rpc.tls import Tls, TlsWithToken, open_tls

ALIAS = "login"
LASTS_S = 4
_ISSUER, _AUDIENCE, _KID, _ALGORITHM = "https://login.example", "strandline", "k1", "ES256"
_KEY = "signing.pem"


def make_issuer(folder: Path) -> str:
    """The file for ``token_issuers``, with the keys that it names beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / _KEY).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": _KID, "use": "sig"}
    (folder / "keys.json").write_text(json.dumps({"keys": [public]}))
    entry = {"alias": ALIAS, "issuer": _ISSUER, "audience": _AUDIENCE, "jwks": str(folder / "keys.json")}
    # JSON is YAML.
    (folder / "issuers.yaml").write_text(json.dumps([entry | {"algorithms": [_ALGORITHM]}]))
    return str(folder / "issuers.yaml")


def with_tokens(folder: Path, ca: str, subject: str) -> dict[str, str]:
    """What a client process is given in place of a certificate's files."""
    return {"tls_ca": ca, "signs_with": str(folder / _KEY), "subject": subject}


def shown(given: dict[str, str], note: Callable[[], None]) -> dict[str, Any]:
    """The same as arguments of clients; ``note`` is called for each token."""
    if "subject" not in given:
        return dict(given)

    async def token() -> str:
        note()
        return _signed(given)

    return {"tls_ca": given["tls_ca"], "token": token}


def tls_of_channel(given: dict[str, str]) -> Tls | None:
    """The same for a channel that no client opens: each call has a token of its own."""
    if "subject" in given:
        return TlsWithToken(given["tls_ca"], lambda: (("authorization", f"Bearer {_signed(given)}"),))
    return open_tls(**given) if given else None


def _signed(given: dict[str, str]) -> str:
    claims = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": given["subject"], "exp": int(time.time()) + LASTS_S}
    return jwt.encode(claims, Path(given["signs_with"]).read_text(), algorithm=_ALGORITHM, headers={"kid": _KID})
