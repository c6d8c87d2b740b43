"""Settings of a served schema: the table with its name in `keyhouse.toml`."""

from typing import Annotated

import msgspec

from keyhouse.operations.catalog import RecordSettings
from keyhouse.service.settings import JwtTenantSettings, KeyRingText
from keyhouse.settings import setting

__all__ = ["SchemaSettings"]


class SchemaSettings(JwtTenantSettings, frozen=True, kw_only=True):
    space: Annotated[
        Annotated[str, msgspec.Meta(min_length=1)] | None,
        setting("The space of every caller. By default it is the tenant of the token."),
    ] = None
    records: Annotated[
        dict[str, RecordSettings],
        setting(
            "Access to records by name: `http = false` and `nats = false` close one there,"
            " `read_only = true` allows only reads."
        ),
    ] = msgspec.field(default_factory=dict)
    key_ring: KeyRingText = None
