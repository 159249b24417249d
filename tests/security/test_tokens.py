"""What is believed of a token, and what of an issuer's keys."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from certificates import CLUSTER
from hypothesis import given, settings, strategies as st
from issued_tokens import TokenIssuer, assembled
from structlog.testing import capture_logs

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.rpc import token_issuers, tokens as module
from strandline.rpc.permissions import CallerRole
from strandline.rpc.server import open_tokens
from strandline.rpc.tls import TlsWrong
from strandline.rpc.token_issuers import ALGORITHMS, KeysAway, read_issuers, read_keys
from strandline.rpc.tokens import Tokens


async def _tokens(*issuers: TokenIssuer, **more: Any) -> Tokens:
    found = Tokens(tuple(one.entry(**more) for one in issuers), CLUSTER)
    await found.start()
    return found


def _refusal(tokens: Tokens, token: str) -> Refusal:
    with pytest.raises(Refused) as caught:
        tokens.verify(token)
    refusal = caught.value.refusal
    assert (refusal.code, refusal.field) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "authorization")
    assert refusal.outcome is Outcome.NOT_APPENDED
    assert all(part not in refusal.message for part in token.split(".") if part)
    return refusal


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_good_token_names_a_client(tmp_path: Path, algorithm: str) -> None:
    """By each algorithm: alias and subject, a client of this cluster, whatever roles the token claims."""
    issuer = TokenIssuer(tmp_path, algorithm)
    caller = (await _tokens(issuer)).verify(issuer.token(role="admin", node_id=1)).caller

    assert (caller.principal, caller.role, caller.cluster) == ("login:alice", CallerRole.CLIENT, CLUSTER)
    assert caller.node_id is None


WRONG: dict[str, tuple[Callable[[TokenIssuer], str], str, str]] = {
    "alg none": (lambda i: assembled({"alg": "none", "kid": "k1"}, i.claims()), "TOKEN_INVALID", "alg is not one"),
    "no alg": (lambda i: assembled({"kid": "k1"}, i.claims()), "TOKEN_INVALID", "alg is not one"),
    "HS256 with the public key": (lambda i: i.signed_with_public_key(), "TOKEN_INVALID", "alg is not one"),
    "another algorithm": (
        lambda i: TokenIssuer(i.directory, "RS256", alias="other").token(),
        "TOKEN_INVALID",
        "alg is not one",
    ),
    "key of another": (lambda i: TokenIssuer(i.directory, alias="other").token(), "TOKEN_INVALID", "signature"),
    "no signature": (lambda i: i.token().rpartition(".")[0] + ".", "TOKEN_INVALID", "signature"),
    "changed claims": (
        lambda i: ".".join((i.token().split(".")[0], i.token(sub="root").split(".")[1], i.token().split(".")[2])),
        "TOKEN_INVALID",
        "signature",
    ),
    "unknown kid": (lambda i: i.token(kid="k2"), "TOKEN_KEY_UNKNOWN", "kid"),
    "kid that is a path": (lambda i: i.token(kid="../../etc/passwd"), "TOKEN_KEY_UNKNOWN", "kid"),
    "crit": (lambda i: i.token(headers={"crit": ["x"], "x": 1}), "TOKEN_INVALID", "no JWT"),
    "another issuer": (lambda i: i.token(iss="https://evil.example"), "TOKEN_INVALID", "iss"),
    "no issuer": (lambda i: i.token(iss=None), "TOKEN_INVALID", "iss"),
    "issuer that is a list": (lambda i: assembled({"alg": "ES256"}, {"iss": [i.issuer]}), "TOKEN_INVALID", "iss"),
    "another audience": (lambda i: i.token(aud="billing"), "TOKEN_INVALID", "aud"),
    "no audience": (lambda i: i.token(aud=None), "TOKEN_INVALID", "lacks"),
    "no subject": (lambda i: i.token(sub=None), "TOKEN_INVALID", "lacks"),
    "no end": (lambda i: i.token(exp=None), "TOKEN_INVALID", "lacks"),
    "end that is not a number": (lambda i: i.token(exp="soon"), "TOKEN_INVALID", "no JWT"),
    "expired": (lambda i: i.token(lasts_s=-31), "TOKEN_EXPIRED", "clocks may differ by 30 s"),
    "not valid yet": (lambda i: i.token(nbf=time.time() + 60), "TOKEN_NOT_YET_VALID", "clocks may differ by 30 s"),
    "issued in the future": (lambda i: i.token(iat=time.time() + 300), "TOKEN_NOT_YET_VALID", "correct that of"),
    "control characters": (lambda i: i.token(sub="a\nb"), "TOKEN_INVALID", "sub"),
    "escape sequences": (lambda i: i.token(sub="\x1b[2J"), "TOKEN_INVALID", "sub"),
    "letters that turn the line": (lambda i: i.token(sub="a\u202eb"), "TOKEN_INVALID", "sub"),
    "spaces around it": (lambda i: i.token(sub="alice "), "TOKEN_INVALID", "sub"),
    "empty subject": (lambda i: i.token(sub=""), "TOKEN_INVALID", "sub"),
    "subject that is everybody": (lambda i: i.token(sub="*"), "TOKEN_INVALID", "sub"),
    "long subject": (lambda i: i.token(sub="a" * 256), "TOKEN_INVALID", "sub"),
    "subject that is a number": (lambda i: assembled({"alg": "ES256", "kid": "k1"}, {**i.claims(), "sub": 1}), "", ""),
    "long token": (lambda i: i.token(more="x" * 10_000), "TOKEN_INVALID", "longer"),
    "nothing": (lambda i: "", "TOKEN_INVALID", "no JWT"),
    "claims that are a list": (lambda i: assembled({"alg": "ES256", "kid": "k1"}, [1]), "TOKEN_INVALID", "no JWT"),
}
"""A token that is wrong in one way, the rule, and a word of the sentence."""


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_token_is_refused_by_rule(tmp_path: Path, wrong: str) -> None:
    """Each with a sentence of ours, in which nothing of the token is."""
    issuer = TokenIssuer(tmp_path)
    make, rule, word = WRONG[wrong]
    refusal = _refusal(await _tokens(issuer), make(issuer))

    assert rule in ("", refusal.rule)
    assert word in refusal.message


async def test_clocks_may_differ_by_thirty_seconds(tmp_path: Path) -> None:
    """Expired 25 s ago or valid in 25 s is believed."""
    issuer = TokenIssuer(tmp_path)
    tokens = await _tokens(issuer)

    assert tokens.verify(issuer.token(lasts_s=-25)).caller == tokens.verify(issuer.token(nbf=time.time() + 25)).caller


async def test_an_issuer_answers_for_its_own_subjects_alone(tmp_path: Path) -> None:
    """A token that names one issuer and is signed by the other one's key is refused, though both are believed."""
    first, second = TokenIssuer(tmp_path), TokenIssuer(tmp_path, alias="second", issuer="https://second.example")
    tokens = await _tokens(first, second)

    assert tokens.verify(second.token()).caller.principal == "second:alice"
    assert "signature" in _refusal(tokens, second.token(iss=first.issuer)).message


async def test_a_million_principals_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tokens that were verified a bounded number is kept, the newest ones; here of a hundred, ten."""
    monkeypatch.setattr(module, "MOST_KEPT", 10)
    issuer = TokenIssuer(tmp_path)
    tokens = await _tokens(issuer)
    for number in range(100):
        tokens.verify(issuer.token(sub=f"p{number}"))

    assert sorted(one.caller.principal for one in tokens._verified.values()) == [f"login:p{n}" for n in range(90, 100)]


async def test_a_token_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its key is taken back or it expires; then it is looked at again."""
    issuer = TokenIssuer(tmp_path)
    tokens = await _tokens(issuer)
    token = issuer.token()
    tokens.verify(token)
    with monkeypatch.context() as patched:
        patched.setattr(module.jwt, "decode", None)
        assert tokens.verify(token).caller.principal == "login:alice"
        patched.setattr(module.time, "time", lambda: 1e12)
        with pytest.raises(Refused):
            tokens.verify(token)
    assert tokens.verify(token).caller.principal == "login:alice"
    issuer.rotate("k2")
    await tokens._keys[issuer.issuer].refresh()

    assert _refusal(tokens, token).rule == "TOKEN_KEY_UNKNOWN"


@given(st.text(max_size=200) | st.lists(st.text("AZaz09-_e=ifQ", max_size=40), max_size=5).map(".".join))
@settings(deadline=None)
def test_no_text_in_the_place_of_a_token_does_more_than_be_refused(text: str) -> None:
    """Whatever it is."""
    tokens = Tokens((), CLUSTER)
    with pytest.raises(Refused):
        tokens.verify(text)


@pytest.mark.parametrize("header", ['{"alg":"ES256","kid":%s}', "%s"])
def test_json_that_is_nested_deeply_is_refused(header: str) -> None:
    """As any other text that is not a token."""
    nested = header % ("[" * 3_000)
    part = base64.urlsafe_b64encode(nested.encode()).decode().rstrip("=")
    with pytest.raises(Refused):
        Tokens((), CLUSTER).verify(f"{part}.{part}.")


# ---- keys


@asynccontextmanager
async def _asked_again(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Tokens, list[float]]]:
    """Tokens of an issuer that is asked, with the task that keeps its keys new; and the times at which it was asked."""
    read_at: list[float] = []
    read, entry = token_issuers.read_keys, issuer.entry()

    def counted(_: Any) -> Any:
        read_at.append(time.monotonic())
        return read(entry)

    monkeypatch.setattr(token_issuers, "read_keys", counted)
    tokens = await _tokens(issuer, jwks="https://login.example/keys")
    task = asyncio.create_task(tokens.keep_forever())
    try:
        yield tokens, read_at
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_new_key_is_known_soon_and_asked_for_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens with a kid that is not known have the keys read again, but at most once in the least time, here 0.2 s."""
    monkeypatch.setattr(module, "LEAST_S", 0.2)
    issuer = TokenIssuer(tmp_path)
    async with _asked_again(issuer, monkeypatch) as (tokens, read_at):
        issuer.rotate("k2", keep=True)
        async with asyncio.timeout(10):
            while True:
                for number in range(100):
                    _refusal(tokens, issuer.token(kid=f"unknown-{number}"))
                if ("k2", "ES256") in tokens._keys[issuer.issuer].known.keys:
                    break
                await asyncio.sleep(0)
            while len(read_at) < 4:
                _refusal(tokens, issuer.token(kid="unknown"))
                await asyncio.sleep(0)

    assert tokens.verify(issuer.token()).caller.principal == "login:alice"
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(read_at))


async def test_the_last_keys_count_while_the_issuer_is_away(tmp_path: Path) -> None:
    """Whether its file is gone, no set of keys, empty or huge; one line says so, and one that it is back."""
    issuer = TokenIssuer(tmp_path)
    tokens = await _tokens(issuer)
    keys, good = tokens._keys[issuer.issuer], issuer.jwks.read_bytes()
    with capture_logs() as lines:
        issuer.jwks.unlink()
        await keys.refresh()
        for content in (b"", b"{", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [7]}', b"[" * 100_000):
            issuer.jwks.write_bytes(content)
            await keys.refresh()
            assert tokens.verify(issuer.token()).caller.principal == "login:alice"
        issuer.jwks.write_bytes(good + b" " * token_issuers.MOST_BYTES)
        await keys.refresh()
        issuer.jwks.write_bytes(good)
        await keys.refresh()

    assert [line["event"] for line in lines] == [
        "an issuer's keys are away, the last ones count",
        "an issuer's keys are back",
    ]


def test_only_public_keys_of_the_listed_algorithms_count(tmp_path: Path) -> None:
    """No secret, no private key, no short one, none for encryption, none without a kid, none for another algorithm."""
    issuer = TokenIssuer(tmp_path, "RS256")
    good = issuer.published[0]
    private = json.loads(module.jwt.get_algorithm_by_name("RS256").to_jwk(issuer.key))
    others = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        {**private, "kid": "private"},
        {**good, "kid": "short", "n": good["n"][:100]},
        {**good, "kid": "encryption", "use": "enc"},
        {**good, "kid": "other", "alg": "RS512"},
        {key: value for key, value in good.items() if key != "kid"},
        {**good, "kid": 7},
        {"kty": "RSA", "kid": "broken", "n": "", "e": ""},
    ]
    issuer.jwks.write_text(json.dumps({"keys": [*others, good]}))
    entry = issuer.entry(algorithms=["RS256", "ES256"])

    assert set(read_keys(entry).keys) == {("k1", "RS256")}
    issuer.jwks.write_text(json.dumps({"keys": others}))
    with pytest.raises(KeysAway, match="no key there has a kid and is a public one for RS256 or ES256"):
        read_keys(entry)


# ---- the file


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ("[" * 5_000, "cannot be read"),
        ("a: 1", "the file: Input should be a valid list; list entries with alias, issuer, audience, jwks"),
        ("[]", "the file: List should have at least 1 item"),
        ("[7]", "0: Input should be a valid dictionary"),
        ("[{alias: a, issuer: i, audience: b}]", "0.jwks: Field required"),
        ("[{…, jwks: f, role: admin}]", "0.role: Extra inputs are not permitted"),
        ("[{alias: A/, issuer: i, audience: b, jwks: f}]", "0.alias: String should match pattern"),
        ("[{alias: a, issuer: 7, audience: b, jwks: f}]", "0.issuer: Input should be a valid string"),
        ("[{alias: a, issuer: i, audience: '', jwks: f}]", "0.audience: String should have at least 1 character"),
        ("[{…, jwks: 'http://x/k'}]", "0.jwks: must be a path or https://HOST/"),
        ("[{…, jwks: 'https:///k'}]", "0.jwks: must be a path or https://HOST/"),
        ("[{…, jwks: 'file:///k'}]", "0.jwks: must be a path or https://HOST/"),
        ("[{…, jwks: f, algorithms: [HS256]}]", "0.algorithms.0: Input should be 'RS256'"),
        ("[{…, jwks: f, algorithms: [none]}]", "0.algorithms.0: Input should be 'RS256'"),
        ("[{…, jwks: f, algorithms: RS256}]", "0.algorithms: Input should be a valid list"),
        ("[{…, jwks: f, algorithms: []}]", "0.algorithms: List should have at least 1"),
        ("[{…, jwks: f}, {alias: a, issuer: j, audience: b, jwks: f}]", "two entries have one alias or issuer"),
        ("[{…, jwks: f}, {alias: c, issuer: i, audience: b, jwks: f}]", "two entries have one alias or issuer"),
    ],
)
def test_a_wrong_file_of_issuers_is_refused_by_field(tmp_path: Path, content: str | None, said: str) -> None:
    """With the file, the field, its rule and a remedy in one line."""
    path = tmp_path / "issuers.yaml"
    if content is not None:
        path.write_text(content.replace("…", "alias: a, issuer: i, audience: b"))
    with pytest.raises(TlsWrong, match=said) as caught:
        read_issuers(str(path))

    assert str(path) in str(caught.value)


async def test_a_file_of_keys_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    """Unlike an issuer that is away, it would stay so."""
    issuer = TokenIssuer(tmp_path)
    issuer.jwks.unlink()
    with pytest.raises(
        TlsWrong, match=r"jwks .*login.json of token_issuers: no answer \(FileNotFoundError\); correct it"
    ):
        await _tokens(issuer)


def test_without_its_package_the_setting_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line."""
    from certificates import Certificates

    monkeypatch.setitem(sys.modules, "jwt", None)
    for name in ("tokens", "token_issuers"):
        monkeypatch.delitem(sys.modules, f"strandline.rpc.{name}")
    tls = Certificates.at(tmp_path).tls("replica/1")
    with pytest.raises(TlsWrong, match="needs PyJWT, which is not installed; install the extra 'tokens'"):
        open_tokens(TokenIssuer(tmp_path).file(), tls)
