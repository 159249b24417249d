"""Cuts the link between two containers of one network, while both still reach all others.

Each of the two gets a hardware address for the other that does not exist, so that whatever it sends there is lost
without an error, like with a broken switch. That needs a capability that the services do not have, and must not have: a
container of the same image joins the network namespace with it for a moment.

Invariant: `mend` removes exactly what `cut` made; both may be repeated.
"""

from __future__ import annotations

import docker
from docker.models.containers import Container

_RUN_S = 30

# struct arpreq of <linux/if_arp.h>: protocol address, hardware address, flags, netmask, device.
_SCRIPT = """
import fcntl, socket, struct, sys
verb, address = sys.argv[1], socket.inet_aton(sys.argv[2])
SET, DELETE, COMPLETE, PERMANENT = 0x8955, 0x8953, 0x02, 0x04
request = struct.pack("=HH4s8xH6s8xi16x16x", socket.AF_INET, 0, address, 1, b"\\x02" + bytes(5), COMPLETE | PERMANENT)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    try:
        fcntl.ioctl(any_socket, SET if verb == "cut" else DELETE, request)
    except OSError as error:
        # ENXIO: there is no such entry, so there is nothing to remove.
        if verb == "cut" or error.errno != 6:
            raise
"""


def cut(image: str, one: Container, other: Container, network: str) -> None:
    """Drops every packet between two containers on a network, both ways."""
    _both("cut", image, one, other, network)


def mend(image: str, one: Container, other: Container, network: str) -> None:
    """Undoes a cut."""
    _both("mend", image, one, other, network)


def address(container: Container, network: str) -> str:
    """A container's address on a network; empty if it is not connected."""
    container.reload()
    found: str = container.attrs["NetworkSettings"]["Networks"].get(network, {}).get("IPAddress", "")
    return found


def _both(verb: str, image: str, one: Container, other: Container, network: str) -> None:
    client = docker.from_env()
    try:
        for inside, peer in ((one, other), (other, one)):
            if address(inside, network) and address(peer, network):
                _run(client, image, [verb, address(peer, network)], inside)
    finally:
        client.close()


def _run(client: docker.DockerClient, image: str, words: list[str], inside: Container) -> None:
    """Runs the script in the network namespace of a container, and removes the helper container with its volume."""
    helper = client.containers.create(
        image,
        ["-c", _SCRIPT, *words],
        entrypoint="/opt/strandline/bin/python",
        network_mode=f"container:{inside.id}",
        user="0",
        cap_drop=["ALL"],
        cap_add=["NET_ADMIN"],
        read_only=True,
    )
    try:
        helper.start()
        code = helper.wait(timeout=_RUN_S)["StatusCode"]
        assert code == 0, helper.logs().decode(errors="replace")
    finally:
        helper.remove(force=True, v=True)
