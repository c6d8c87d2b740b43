"""Network addresses in keys: one spelling for each address."""

from ipaddress import IPv6Address, ip_address

from keyhouse.keys import NormalizedText

__all__ = ["IpAddress", "canonical_address"]


class IpAddress(NormalizedText):
    """An IPv4 or IPv6 address in its canonical form; an IPv4 address mapped to IPv6 is the IPv4
    address."""

    description = "an IP address in its canonical form"

    def format(self, value: object) -> str:
        return super().format(canonical_address(str(value)))


def canonical_address(text: str) -> str:
    """Return the one spelling of an address; raises ValueError if the text is not one."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        raise ValueError("must be an IP address") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)
