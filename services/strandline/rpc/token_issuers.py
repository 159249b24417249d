"""The issuers whose tokens are accepted: the file of the setting ``token_issuers``, and the keys of each issuer.

Invariant: only public keys for the algorithms in the issuer's entry are used; messages never contain anything that an
issuer has sent.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import jwt
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from strandline.rpc.tls import TlsWrong

_Algorithm = Literal["RS256", "PS256", "ES256", "EdDSA"]
ALGORITHMS: tuple[str, ...] = get_args(_Algorithm)
"""The algorithms that an entry may list. All have public keys: a key that verifies can never sign."""
MOST_BYTES = 256 << 10
"""Largest set of keys."""
FETCH_S = 5.0
"""Time limit for each step of a request to an issuer, and for the whole body of its answer."""


class KeysAway(Exception):
    """An issuer's keys are not available now; the message says why."""


class KeySet(NamedTuple):
    """The content that an issuer published, and the keys in it by kid and algorithm."""

    content: bytes = b""
    keys: Mapping[tuple[str, str], jwt.PyJWK] = {}


def _place(jwks: str) -> str:
    if "://" in jwks and not (jwks.startswith("https://") and urlsplit(jwks).hostname):
        raise ValueError("must be a path or https://HOST/...: what comes by http can be replaced on its way")
    return jwks


_Text = Annotated[str, Field(min_length=1)]


class Issuer(BaseModel):
    """One entry of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    alias: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
    """The first part of the principals in this issuer's tokens."""
    issuer: _Text
    """The exact ``iss`` claim of its tokens."""
    audience: _Text
    """A value that the ``aud`` claim of its tokens must contain."""
    jwks: Annotated[_Text, AfterValidator(_place)]
    """Where its keys are: a path, or an https URL."""
    jwks_ca: str = ""
    """The authorities trusted for that URL; empty: the system's authorities."""
    algorithms: Annotated[list[_Algorithm], Field(min_length=1)] = ["RS256"]

    @property
    def is_remote(self) -> bool:
        """Whether the keys are fetched by https."""
        return self.jwks.startswith("https://")


_FILE = TypeAdapter(Annotated[list[Issuer], Field(min_length=1)])


def read_issuers(path: str) -> list[Issuer]:
    """The entries of a file.

    Raises:
        TlsWrong: the file is wrong; the same exception as for TLS, because tokens need TLS.
    """
    try:
        found = _FILE.validate_python(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where, said = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        entry = "list entries with alias, issuer, audience, jwks and, if needed, jwks_ca and algorithms"
        raise TlsWrong(f"token_issuers {path}: {where or 'the file'}: {said}; {entry}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise TlsWrong(f"token_issuers {path} cannot be read: {error}") from None
    if min(len({one.alias for one in found}), len({one.issuer for one in found})) < len(found):
        raise TlsWrong(f"token_issuers {path}: two entries have one alias or issuer; give each issuer one entry")
    return found


# ---- keys


def read_keys(issuer: Issuer) -> KeySet:
    """Read the issuer's current keys. It blocks, so it must not be called in the event loop.

    Raises:
        KeysAway: there is no answer, or no usable key in it.
    """
    try:
        content = _fetched(issuer) if issuer.is_remote else _of_file(issuer)
        if len(content) > MOST_BYTES:
            raise KeysAway(f"the set of keys is larger than {MOST_BYTES} bytes")
        found: dict[tuple[str, str], jwt.PyJWK] = {
            (one["kid"], algorithm): key
            for one in json.loads(content)["keys"]
            for algorithm in issuer.algorithms
            if (key := _key(one, algorithm)) is not None
        }
    except (OSError, http.client.HTTPException) as error:
        raise KeysAway(f"no answer ({type(error).__name__})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeysAway("the content is not a set of keys (RFC 7517)") from error
    if not found:
        raise KeysAway(f"no key there has a kid and is a public one for {' or '.join(issuer.algorithms)}")
    return KeySet(content, found)


def _key(listed: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    is_meant = listed.get("use", "sig") == "sig" and listed.get("alg", algorithm) == algorithm
    if "d" in listed or not is_meant or not isinstance(listed.get("kid"), str):
        return None
    try:
        key = jwt.PyJWK(dict(listed), algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    # The check finds RSA keys of less than 2048 bits.
    return None if key.Algorithm.check_key_length(key.key) else key


def _of_file(issuer: Issuer) -> bytes:
    with Path(issuer.jwks).open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _fetched(issuer: Issuer) -> bytes:
    """One GET, without proxies and redirects, so that it goes to the host in the settings, which was checked."""
    url = urlsplit(issuer.jwks)
    context = ssl.create_default_context(cafile=issuer.jwks_ca or None)
    asked = http.client.HTTPSConnection(str(url.hostname), url.port, timeout=FETCH_S, context=context)
    try:
        asked.request("GET", f"{url.path or '/'}{'?' if url.query else ''}{url.query}", headers={"Connection": "close"})
        answer = asked.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise KeysAway(f"HTTP status {answer.status}")
        content, end_s = b"", time.monotonic() + FETCH_S
        while (part := answer.read1(MOST_BYTES)) and len(content) <= MOST_BYTES:
            content += part
            if time.monotonic() > end_s:
                raise KeysAway(f"the answer takes longer than {FETCH_S:g} s")
        return content
    finally:
        asked.close()
