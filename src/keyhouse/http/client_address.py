"""The address of the client that sent a request, through trusted proxies.

Any client can send `X-Forwarded-For`; only what a trusted proxy has appended to it is true. So the
list is read from the right: addresses of trusted proxies are skipped, and the first other one is
the client. Addresses are canonical: an IPv4 address mapped into IPv6 is IPv4, IPv6 is compressed
and has no zone.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

import msgspec

from keyhouse.errors import UsageError

__all__ = ["ClientAddress", "TrustedProxies", "canonical_address", "trusted_proxies"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

HOPS_MAX: Final = 32
"""Proxies between a client and the service."""

_IPV6_NETWORK_BITS: Final = 64
"""One customer's part of IPv6: within it, a client chooses its address."""


class ClientAddress(msgspec.Struct, frozen=True):
    """The address of a client; empty if the server does not know it, as on a local socket.

    `network` is what limits and blocks should count by: the address, or the /64 of an IPv6 address.
    `is_https` tells whether the client's connection, to the first trusted proxy, is encrypted.
    """

    address: str
    network: str
    is_https: bool = False

    def __str__(self) -> str:
        return self.address


def canonical_address(text: str) -> str:
    """Return the canonical form of an IP address. Raises UsageError for other text."""
    parsed = _parse(text)
    if parsed is None:
        raise UsageError("This is not an IP address.", address=text)
    return str(parsed)


class TrustedProxies:
    """Finds the client behind proxies in these networks. Raises UsageError if one is invalid."""

    __slots__ = ("_networks",)

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = tuple(_network(text) for text in networks)

    def client(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> ClientAddress:
        """Return the client of an ASGI request. `headers` has the last of repeated ones."""
        peer = scope.get("client")
        found = None if peer is None else _parse(peer[0])
        is_https = scope.get("scheme") == "https"
        if found is None or not self._networks or not self._trusts(found):
            return _client(found, is_https)
        protocol = headers.get(b"x-forwarded-proto")
        if protocol is not None:
            is_https = protocol.rpartition(b",")[2].strip().lower() == b"https"
        if b"x-forwarded-for" in headers:
            found = self._behind(found, _forwarded(scope["headers"]))
        return _client(found, is_https)

    def _behind(self, proxy: Address, hops: list[str]) -> Address:
        """Return the client, or the outermost proxy if what it reports is not an address."""
        found = proxy
        for hop in hops:
            parsed = _parse(_without_port(hop))
            if parsed is None:
                return found
            found = parsed
            if not self._trusts(parsed):
                return found
        return found

    def _trusts(self, address: Address) -> bool:
        return any(
            address.version == network.version and address in network for network in self._networks
        )


@cache
def trusted_proxies(networks: tuple[str, ...]) -> TrustedProxies:
    """Return the proxies of a setting; parsed once."""
    return TrustedProxies(networks)


def _forwarded(pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
    """Return the addresses of all `X-Forwarded-For` lines, the nearest first."""
    joined = b",".join(value for name, value in pairs if name == b"x-forwarded-for")
    hops = joined.decode("latin-1").rsplit(",", HOPS_MAX)[-HOPS_MAX:]
    return [hop.strip() for hop in reversed(hops)]


def _client(address: Address | None, is_https: bool) -> ClientAddress:
    if address is None:
        return ClientAddress("", "", is_https)
    if isinstance(address, IPv4Address):
        return ClientAddress(str(address), str(address), is_https)
    network = IPv6Network((int(address), _IPV6_NETWORK_BITS), strict=False)
    return ClientAddress(str(address), str(network), is_https)


def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _without_port(hop: str) -> str:
    """Some proxies append the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _network(text: str) -> Network:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise UsageError(
            "A trusted proxy is an IP address or a network such as 10.0.0.0/8.", proxy=text
        ) from None
    mapped = network.network_address
    if isinstance(mapped, IPv6Address) and mapped.ipv4_mapped and network.prefixlen >= 96:
        return IPv4Network((mapped.ipv4_mapped, network.prefixlen - 96))
    return network
