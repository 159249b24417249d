"""An issuer of tokens for tests: its keys, its entry in the file of ``token_issuers``, and tokens wrong in one way."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from strandline.rpc.token_issuers import Issuer

ISSUER, AUDIENCE, ALIAS = "https://login.example", "strandline", "login"
_MAKES: Mapping[str, Any] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@dataclass
class TokenIssuer:
    """Signs with one key at a time."""

    directory: Path
    algorithm: str = "ES256"
    kid: str = "k1"
    alias: str = ALIAS
    issuer: str = ISSUER
    key: Any = None
    published: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rotate(self.kid)

    @property
    def jwks(self) -> Path:
        return self.directory / f"{self.alias}.json"

    def rotate(self, kid: str, *, keep: bool = False) -> None:
        """Sign with a new key from now on, and publish it, with the ones before if ``keep``."""
        self.kid, self.key = kid, _MAKES[self.algorithm]()
        named = jwt.get_algorithm_by_name(self.algorithm)
        public = {**named.to_jwk(self.key.public_key(), as_dict=True), "kid": kid, "use": "sig"}
        self.published = [*(self.published if keep else []), public]
        self.jwks.write_text(json.dumps({"keys": self.published}))

    def entry(self, **more: Any) -> Issuer:
        given = {"alias": self.alias, "issuer": self.issuer, "audience": AUDIENCE, "jwks": str(self.jwks)}
        return Issuer(**{**given, "algorithms": [self.algorithm], **more})

    def file(self, **more: Any) -> str:
        """The path of a file with its entry alone."""
        given = {"alias": self.alias, "issuer": self.issuer, "audience": AUDIENCE, "jwks": str(self.jwks)}
        path = self.directory / "issuers.yaml"
        path.write_text(yaml.safe_dump([{**given, "algorithms": [self.algorithm], **more}]))
        return str(path)

    def claims(self, *, lasts_s: float = 300.0, **more: Any) -> dict[str, Any]:
        """Those of a good token; None takes one out."""
        given = {"iss": self.issuer, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + lasts_s, **more}
        return {name: value for name, value in given.items() if value is not None}

    def token(self, *, kid: str | None = None, headers: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A token, good if nothing is given."""
        return jwt.encode(
            self.claims(**claims),
            self.key,
            algorithm=self.algorithm,
            headers={"kid": kid or self.kid, **(headers or {})},
        )

    def signed_with_public_key(self) -> str:
        """HS256, with the published key as the secret."""
        public = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return assembled({"alg": "HS256", "kid": self.kid}, self.claims(), _hmac(public))


def assembled(header: Mapping[str, Any], claims: Any, sign: Any = lambda _: b"") -> str:
    """A token of these parts, whatever they are."""
    first = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
    return f"{first}.{_base64(sign(first.encode()))}"


def _hmac(secret: bytes) -> Any:
    import hashlib
    import hmac

    return lambda message: hmac.digest(secret, message, hashlib.sha256)


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
