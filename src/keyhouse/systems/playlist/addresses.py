"""Network addresses in keys: one spelling for each address."""

from ipaddress import IPv6Address, IPv6Network, ip_address

from keyhouse.keys import NormalizedText

__all__ = ["IpAddress", "canonical_address"]


class IpAddress(NormalizedText):
    """An IPv4 or IPv6 address in its canonical form; an IPv4 address mapped to IPv6 is the IPv4
    address. The /64 of an IPv6 address is one too: a client chooses its address within it."""

    description = "an IP address in its canonical form, or the /64 of one"

    def format(self, value: object) -> str:
        text = str(value)
        if text.endswith("/64"):
            return super().format(_canonical_network(text))
        return super().format(canonical_address(text))


def canonical_address(text: str) -> str:
    """Return the one spelling of an address; raises ValueError if the text is not one."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        raise ValueError("must be an IP address") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def _canonical_network(text: str) -> str:
    try:
        return str(IPv6Network(text, strict=False))
    except ValueError:
        raise ValueError("must be the /64 of an IPv6 address") from None
