#!/usr/bin/env python3
"""Speaks grpcurl's command line and output with `buf curl`, where grpcurl itself is not to be had.

Only what docs/GRPCURL.md uses: list, calls with -d, -max-time; `describe` is not there, buf has none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

NO_SUCH_VERB = 125
_BUF = (os.environ.get("BUF", "buf"), "curl", "--protocol", "grpc")
_PLAIN = ("--http2-prior-knowledge",)
_CODES = {
    "invalid_argument": "InvalidArgument",
    "failed_precondition": "FailedPrecondition",
    "not_found": "NotFound",
    "permission_denied": "PermissionDenied",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="grpcurl")
    parser.add_argument("-plaintext", action="store_true")
    parser.add_argument("-max-time", type=float)
    for file in ("-cacert", "-cert", "-key"):
        parser.add_argument(file)
    parser.add_argument("-d", default="{}")
    parser.add_argument("words", nargs="+")
    given = parser.parse_args()
    address, verb, *rest = given.words
    url = f"http://{address}" if given.plaintext else f"https://{address}"
    how = _PLAIN if given.plaintext else ("--cacert", given.cacert, "--cert", given.cert, "--key", given.key)
    if verb == "describe":
        return NO_SUCH_VERB
    if verb == "list":
        return _list(url, rest[0] if rest else "", how)
    try:
        ran = subprocess.run(
            [*_BUF, *how, "-d", given.d, f"{url}/{verb}"], capture_output=True, text=True, timeout=given.max_time or 60
        )
    except subprocess.TimeoutExpired as expired:
        _show((expired.stdout or b"").decode())
        print("ERROR:\n  Code: DeadlineExceeded\n  Message: context deadline exceeded", file=sys.stderr)
        return 68
    _show(ran.stdout)
    if ran.returncode:
        _show_error(ran.stderr)
    return ran.returncode


def _list(url: str, service: str, how: tuple[str, ...]) -> int:
    verb = "--list-methods" if service else "--list-services"
    ran = subprocess.run([*_BUF, *how, verb, url], capture_output=True, text=True, timeout=60)
    names = sorted(line.replace("/", ".") for line in ran.stdout.split() if line.startswith(service))
    print("\n".join(names))
    return ran.returncode


def _show(text: str) -> None:
    """One message after the other, indented as grpcurl does; spaces in protobuf's JSON are deliberately unstable."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        print(json.dumps(value, indent=2, ensure_ascii=False))
        rest = rest[end:].strip()
    sys.stdout.flush()


def _show_error(text: str) -> None:
    error = json.loads(text[text.index("{") :])
    print(f"ERROR:\n  Code: {_CODES.get(error['code'], error['code'])}\n  Message: {error['message']}", file=sys.stderr)
    for number, detail in enumerate(error.get("details", []), 1):
        told = {"@type": f"type.googleapis.com/{detail['type']}"} | dict(sorted(detail["debug"].items()))
        shown = json.dumps(told, indent=2).replace("\n", "\n    \t")
        print(f"  Details:\n  {number})\t{shown}" if number == 1 else f"  {number})\t{shown}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
