"""Verifies the token of a call and returns the caller that it names (C106 to C108).

Invariant: no claim of a token is used before its signature is verified, with a key of its issuer and an algorithm that
this process's settings allow; messages and log lines never contain any part of a token. A caller with a token is a
client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

import jwt
import structlog

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.permissions import LONGEST_SUBJECT, is_principal
from strandline.rpc import token_issuers
from strandline.rpc.permissions import Bearer, CallerRole
from strandline.rpc.status import KEY_UNKNOWN, status_code, trailing_details
from strandline.rpc.tls import TlsWrong
from strandline.rpc.token_issuers import Issuer, KeysAway, KeySet

LEEWAY_S = 30.0
"""How much the clocks of the issuer and of this machine may differ."""
LEAST_S = 30.0
"""Shortest time between two readings of one issuer's keys, however many tokens name unknown keys."""
EVERY_S = 300.0
"""Time between two readings if no token names an unknown key; files are read every `LEAST_S`."""
MOST_TOKEN = 8 << 10
MOST_KEPT = 10_000
"""Verified tokens that are cached; the oldest one is dropped first."""
_LONGEST_STREAM_S = 86_400.0

_log = structlog.get_logger("strandline.rpc")


class Keys:
    """The keys of one issuer, as they were last read."""

    def __init__(self, issuer: Issuer) -> None:
        """Read the keys if they are in a file.

        Raises:
            TlsWrong: the file cannot be used.
        """
        self.issuer = issuer
        try:
            self.known = KeySet() if issuer.is_remote else token_issuers.read_keys(issuer)
        except KeysAway as error:
            raise TlsWrong(f"jwks {issuer.jwks} of token_issuers: {error}; correct it") from None
        self._is_away = False
        self.unknown = asyncio.Event()
        """Set when a token names an unknown key."""

    async def refresh(self) -> None:
        """Read the keys; if they are not available, keep the last ones."""
        try:
            found = await asyncio.to_thread(token_issuers.read_keys, self.issuer)
        except KeysAway as error:
            if not self._is_away:
                _log.warning("an issuer's keys are away, the last ones count", issuer=self.issuer.alias, why=str(error))
            self._is_away = True
            return
        if self._is_away:
            _log.info("an issuer's keys are back", issuer=self.issuer.alias)
        self._is_away = False
        if found.content != self.known.content:
            self.known = found

    async def keep_forever(self) -> None:
        """Read the keys again and again, while the process runs."""
        while True:
            await asyncio.sleep(LEAST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S - LEAST_S if self.issuer.is_remote and self.known.keys else 0):
                    await self.unknown.wait()
            self.unknown.clear()
            await self.refresh()


class Verified(NamedTuple):
    """The result of verifying a token."""

    caller: Bearer
    expires_s: float
    keys: Keys
    known: KeySet
    """The issuer's keys at the verification; once they change the token is verified again: its key may be revoked."""


class Tokens:
    """Verifies the tokens of one process's callers."""

    def __init__(self, issuers: Iterable[Issuer], cluster: str) -> None:
        self._cluster = cluster
        self._keys = {one.issuer: Keys(one) for one in issuers}
        self._verified: dict[bytes, Verified] = {}

    async def start(self) -> None:
        """Read the keys of all issuers. An issuer that is not available is tried again later."""
        await asyncio.gather(*(keys.refresh() for keys in self._keys.values()))

    async def keep_forever(self) -> None:
        """Keep the keys of all issuers up to date."""
        async with asyncio.TaskGroup() as group:
            for keys in self._keys.values():
                group.create_task(keys.keep_forever())

    def of_call(self, context: Any, *, is_stream: bool) -> Bearer | None:
        """The caller that a call's token names; None if the connection has a certificate and the call no token.

        A stream ends when its token expires.

        Raises:
            Refused: there are both or neither, or the token is not accepted.
        """
        given = [value for name, value in context.invocation_metadata() if name == "authorization"]
        if context.auth_context():
            if not given:
                return None
            raise _refused(
                "TOKEN_AND_CERTIFICATE", "a certificate and a token came; send one, so that it is plain who calls"
            )
        if not given:
            raise _refused("TOKEN_MISSING", "no certificate and no token came; send 'authorization: Bearer TOKEN'")
        scheme, _, token = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer":
            raise _refused("TOKEN_INVALID", "authorization is not 'Bearer TOKEN', once; send that")
        verified = self.verify(token)
        if is_stream:
            _end_with(context, verified.expires_s)
        return verified.caller

    def verify(self, token: str) -> Verified:
        """Verify a token, or find it among those already verified.

        Raises:
            Refused: it is not accepted.
        """
        digest, now_s = sha256(token.encode()).digest(), time.time()
        verified = self._verified.get(digest)
        if verified is not None and now_s < verified.expires_s and verified.known is verified.keys.known:
            return verified
        self._verified.pop(digest, None)
        verified = self._verify(token)
        if len(self._verified) >= MOST_KEPT:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = verified
        return verified

    def _verify(self, token: str) -> Verified:
        if len(token) > MOST_TOKEN:
            raise _refused("TOKEN_INVALID", f"the token is longer than {MOST_TOKEN} characters; ask for fewer claims")
        try:
            unproven = jwt.decode_complete(token, options={"verify_signature": False})
            keys, key = self._key(unproven["payload"].get("iss"), unproven["header"])
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=keys.issuer.issuer,
                audience=keys.issuer.audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            expires_s = float(int(claims["exp"]))
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            kind = next((kind for kind in _SAID if isinstance(error, kind)), jwt.PyJWTError)
            raise _refused(*_SAID[kind]) from None
        principal = f"{keys.issuer.alias}:{claims['sub']}"
        if not is_principal(principal):
            said = f"the token's sub is not 1 to {LONGEST_SUBJECT} characters that can be printed, or is '*'"
            raise _refused("TOKEN_INVALID", f"{said}; no rule could name it")
        return Verified(Bearer(self._cluster, CallerRole.CLIENT, principal), expires_s, keys, keys.known)

    def _key(self, issuer: object, header: dict[str, Any]) -> tuple[Keys, jwt.PyJWK]:
        keys = self._keys.get(issuer) if isinstance(issuer, str) else None
        kid, algorithm = header.get("kid", ""), header.get("alg")
        if keys is None:
            raise _refused("TOKEN_INVALID", "the token's iss is none of token_issuers; use a token of one of them")
        if algorithm not in keys.issuer.algorithms:
            listed = ", ".join(keys.issuer.algorithms)
            raise _refused("TOKEN_INVALID", f"the token's alg is not one that its issuer's entry lists: {listed}")
        key = keys.known.keys.get((kid, algorithm))
        if key is None:
            keys.unknown.set()
            why = f"no known key of the issuer has the token's kid; keys are read again within {LEAST_S:g} s"
            raise _refused(KEY_UNKNOWN, f"{why}, or get a new token")
        return keys, key


_CLOCKS = f"clocks may differ by {LEEWAY_S:g} s: if the token is a new one, correct that of its issuer or of this node"
_SAID: dict[type[Exception], tuple[str, str]] = {
    jwt.ExpiredSignatureError: ("TOKEN_EXPIRED", f"the token has expired; {_CLOCKS}"),
    jwt.ImmatureSignatureError: ("TOKEN_NOT_YET_VALID", f"the token's nbf or iat is in the future; {_CLOCKS}"),
    jwt.InvalidSignatureError: ("TOKEN_INVALID", "the token's signature is not that of the key that its kid names"),
    jwt.InvalidAudienceError: ("TOKEN_INVALID", "the token's aud is not that of its issuer's entry; ask for that one"),
    jwt.MissingRequiredClaimError: ("TOKEN_INVALID", "the token lacks one of exp, iss, aud and sub, which are needed"),
    jwt.PyJWTError: ("TOKEN_INVALID", "the token is no JWT that can be read; send one as its issuer made it"),
}


def _refused(rule: str, why: str) -> Refused:
    code, outcome = ErrorCode.SASL_AUTHENTICATION_FAILED, Outcome.NOT_APPENDED
    return Refused.of(Refusal(code, why, outcome, "authorization", rule))


def _end_with(context: Any, expires_s: float) -> None:
    """End a stream when its token expires by this machine's clock; one accepted within the leeway ends after that."""
    left_s = expires_s - time.time()
    ending_s = min(left_s if left_s > 0 else left_s + LEEWAY_S, _LONGEST_STREAM_S)
    timer = asyncio.get_running_loop().call_later(max(0.0, ending_s), _expired, context)
    context.add_done_callback(lambda _: timer.cancel())


def _expired(context: Any) -> None:
    # Answers not yet sent are lost, as with a broken connection; the client sends its requests again.
    refusal = _refused("TOKEN_EXPIRED", "the stream's token has expired; open it again with a new one").refusal
    context.set_trailing_metadata(trailing_details(refusal))
    context.broken(status_code(refusal), str(refusal))
