"""Whose tokens are believed: the file of the setting ``token_issuers``, and the keys of each issuer.

Invariant: keys are public ones of the algorithms that the issuer's entry lists. While an issuer is away, or sends what
is no set of keys, its last keys count; nothing that it sends is ever in a sentence.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from strandline.rpc.tls import Tls, TlsWrong

if TYPE_CHECKING:
    import jwt

    from strandline.rpc.tokens import Tokens

ALGORITHMS: Mapping[str, str] = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
"""What can be listed, and the type of its keys. None verifies by what could also sign: each has a public key."""
MOST_BYTES = 256 << 10
"""Of a set of keys."""
FETCH_S = 5.0
"""For each step of a request to an issuer, and for its answer together."""
_ALIAS = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class KeySet(NamedTuple):
    """What an issuer published, and the keys in it by kid and algorithm."""

    content: bytes = b""
    keys: Mapping[tuple[str, str], jwt.PyJWK] = {}


class KeysAway(Exception):
    """An issuer's keys cannot be had now; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """One entry of the file."""

    alias: str
    """The first part of its principals."""
    issuer: str
    """The claim ``iss`` of its tokens, exactly."""
    audience: str
    """What must be among their ``aud``."""
    jwks: str
    """Where its keys are: a path, or https."""
    jwks_ca: str = ""
    """Whose certificates are believed there; empty: the system's authorities."""
    algorithms: tuple[str, ...] = ("RS256",)

    def __post_init__(self) -> None:
        """Raises:
        ValueError: with field, rule and remedy.
        """
        for name in ("alias", "issuer", "audience", "jwks", "jwks_ca"):
            value = getattr(self, name)
            if not isinstance(value, str) or (not value and name != "jwks_ca"):
                raise ValueError(f"{name} is no text; write {name}: TEXT")
        if not _ALIAS.fullmatch(self.alias):
            raise ValueError("alias must be 1 to 32 of a-z, 0-9 and '-', and not begin with '-'; choose another")
        if not self.algorithms or not set(self.algorithms) <= ALGORITHMS.keys():
            raise ValueError(
                f"algorithms must be some of {', '.join(ALGORITHMS)}; list those that the issuer signs with"
            )
        if "://" in self.jwks and not self.is_remote:
            raise ValueError(
                "jwks must be a path or https://HOST/...: on the way others could replace what comes by http"
            )

    @property
    def is_remote(self) -> bool:
        """Whether the keys are asked for."""
        return self.jwks.startswith("https://") and bool(urlsplit(self.jwks).hostname)


def read_issuers(path: str) -> tuple[Issuer, ...]:
    """The entries of a file.

    Raises:
        TlsWrong: with one sentence, as for the files of TLS, without which there are no tokens.
    """
    try:
        listed = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise TlsWrong(f"token_issuers {path} cannot be read: {error}") from None
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, dict) for entry in listed):
        raise TlsWrong(f"token_issuers {path} must be a list of issuers, each with alias, issuer, audience and jwks")
    try:
        found = tuple(map(_issuer, listed))
    except ValueError as error:
        raise TlsWrong(f"token_issuers {path}: {error}") from None
    for name in ("alias", "issuer"):
        if len({getattr(one, name) for one in found}) < len(found):
            raise TlsWrong(f"token_issuers {path}: two entries have one {name}; give each issuer one entry and alias")
    return found


def _issuer(entry: dict[str, Any]) -> Issuer:
    needed, known = ("alias", "issuer", "audience", "jwks"), [field.name for field in fields(Issuer)]
    wrong = [f"{name} is missing" for name in needed if name not in entry]
    wrong += [f"{name} is no field" for name in entry if name not in known]
    if wrong:
        raise ValueError(f"{wrong[0]}; an entry has {', '.join(known)}")
    listed = entry.get("algorithms", ["RS256"])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise ValueError(f"algorithms is no list; write for example [{', '.join(ALGORITHMS)}]")
    return Issuer(**{**entry, "algorithms": tuple(listed)})


async def open_tokens(path: str, tls: Tls | None, own: Callable[[Coroutine[Any, Any, None]], object]) -> Tokens | None:
    """What the setting asks for; None where it is empty. ``own`` begins the task that keeps the keys new.

    Raises:
        TlsWrong: the file or an issuer's file of keys cannot be used, or PyJWT is not installed.
    """
    if not path or tls is None:
        return None
    try:
        from strandline.rpc.tokens import Tokens
    except ModuleNotFoundError as error:
        if error.name != "jwt":
            raise
        raise TlsWrong("token_issuers needs PyJWT, which is not installed; install the extra 'tokens'") from None
    tokens = Tokens(read_issuers(path), tls.identity.cluster)
    await tokens.start()
    own(tokens.keep_forever())
    return tokens


# ---- keys


def read_keys(issuer: Issuer) -> KeySet:
    """The keys of an issuer, as they are now; to be called outside the event loop.

    Raises:
        KeysAway: there are none to be had.
    """
    try:
        content = _fetched(issuer) if issuer.is_remote else _of_file(issuer)
        listed = json.loads(content)["keys"]
        found = {
            (one["kid"], algorithm): key
            for one in listed
            for algorithm in issuer.algorithms
            if (key := _key(one, algorithm)) is not None
        }
    except (OSError, http.client.HTTPException) as error:
        raise KeysAway(f"no answer ({type(error).__name__})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeysAway("what is there is no set of keys (RFC 7517)") from error
    if not found:
        raise KeysAway(f"no key there has a kid and is a public one for {' or '.join(issuer.algorithms)}")
    return KeySet(content, found)


def _key(listed: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    import jwt

    is_public = listed.get("kty") == ALGORITHMS[algorithm] and "d" not in listed
    is_meant = listed.get("use", "sig") == "sig" and listed.get("alg", algorithm) == algorithm
    if not is_public or not is_meant or not isinstance(listed.get("kid"), str):
        return None
    try:
        key = jwt.PyJWK(dict(listed), algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    # Of RSA, less than 2048 bits.
    return None if key.Algorithm.check_key_length(key.key) else key


def _of_file(issuer: Issuer) -> bytes:
    with Path(issuer.jwks).open("rb") as file:
        return _bounded(file.read(MOST_BYTES + 1))


def _fetched(issuer: Issuer) -> bytes:
    """One GET, without proxies and without following anywhere: what was checked is the host in the settings."""
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
        return _bounded(content)
    finally:
        asked.close()


def _bounded(content: bytes) -> bytes:
    if len(content) > MOST_BYTES:
        raise KeysAway(f"the set of keys is larger than {MOST_BYTES} bytes")
    return content
