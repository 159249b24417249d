#!/usr/bin/env python3
"""Provides grpcurl's command line and output with `buf curl`, where grpcurl itself is not available.

Only what transcript.md uses: list, calls with -d, -max-time; `describe` is missing, because buf has none.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import subprocess
import sys
import time
from typing import Any

from google.rpc import error_details_pb2

NO_SUCH_VERB = 125
_BUF = (os.environ.get("BUF", "buf"), "curl", "--protocol", "grpc")
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_HEAD_S = 2.0
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
        # grpcurl prints messages as they arrive, long before this line; a `head` behind it must see them first.
        time.sleep(_HEAD_S)
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
    """One message after the other, indented like grpcurl; spaces in protobuf's JSON are deliberately unstable."""
    decoder, rest = json.JSONDecoder(), text.strip()
    try:
        while rest:
            value, end = decoder.raw_decode(rest)
            print(json.dumps(_as_grpcurl(value), indent=2, ensure_ascii=False))
            rest = rest[end:].strip()
        sys.stdout.flush()
    except BrokenPipeError:
        # A `head` has read enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _error_info(value: str) -> dict[str, Any]:
    """The one type of detail that the servers send; its base64 comes without padding."""
    info = error_details_pb2.ErrorInfo.FromString(base64.b64decode(f"{value}=="))
    return {"domain": info.domain, "metadata": dict(sorted(info.metadata.items())), "reason": info.reason}


def _as_grpcurl(value: Any) -> Any:
    """Names of fields as in the contract; buf writes them in camel case."""
    if isinstance(value, list):
        return [_as_grpcurl(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {_CAMEL.sub(r"_\1", name).lower(): _as_grpcurl(each) for name, each in value.items()}


def _show_error(text: str) -> None:
    error = json.loads(text[text.index("{") :])
    print(f"ERROR:\n  Code: {_CODES.get(error['code'], error['code'])}\n  Message: {error['message']}", file=sys.stderr)
    for number, detail in enumerate(error.get("details", []), 1):
        reported = {"@type": f"type.googleapis.com/{detail['type']}"} | _error_info(detail["value"])
        shown = json.dumps(reported, indent=2).replace("\n", "\n    \t")
        print(f"  Details:\n  {number})\t{shown}" if number == 1 else f"  {number})\t{shown}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
