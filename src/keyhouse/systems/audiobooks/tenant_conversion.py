"""Conversion of all libraries of a store to keys with the tenant prefix, or without."""

from keyhouse.engine import Engine
from keyhouse.store import PrefixConversion, convert_prefix
from keyhouse.systems.audiobooks.schema import SCHEMAS, TENANT_PREFIX

__all__ = ["convert_tenants"]


async def convert_tenants(engine: Engine, *, on: bool) -> dict[str, PrefixConversion]:
    """Convert every library; return the result of each by its name."""
    plain = SCHEMAS[0]
    prefixed = plain.under(TENANT_PREFIX)
    source, target = (plain, prefixed) if on else (prefixed, plain)
    names = [name async for name in engine.spaces()]
    return {name: await convert_prefix(engine, name, source, target) for name in names}
