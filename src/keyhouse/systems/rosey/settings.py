"""The settings of plugin storage: the table `[rosey]` of `keyhouse.toml`. Its tokens are those of the operator's view."""

from typing import Annotated, Final

import msgspec

from keyhouse.auth import JwtSettings
from keyhouse.errors import UsageError
from keyhouse.settings import setting

__all__ = ["OPERATOR_PATTERN", "Settings"]

OPERATOR_PATTERN: Final = "[!-~]{1,255}"
"""What a token may call an operator: it is only written into the log."""

Positive = msgspec.Meta(gt=0)
AtLeastNone = msgspec.Meta(ge=0)
PREFIX = msgspec.Meta(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")


class Settings(JwtSettings, frozen=True, kw_only=True):
    prefixes: Annotated[
        tuple[Annotated[str, PREFIX], ...],
        msgspec.Meta(min_length=1),
        setting("Subjects begin with one of these: `db.kv.<plugin>.<operation>`."),
    ] = ("db.kv", "rosey.db.kv")
    changes_prefix: Annotated[
        str,
        PREFIX,
        setting("A plugin may have its changes sent to subjects below `<this>.<plugin>`."),
    ] = "db.changes"
    queue: Annotated[
        str, PREFIX, setting("The queue group that the processes of one service share.")
    ] = "rosey"
    sweep_seconds: Annotated[float, Positive, setting("How often expired keys are removed.")] = (
        300.0
    )
    census_seconds: Annotated[
        float,
        AtLeastNone,
        setting(
            "How often keys and bytes are counted for metrics and quotas; 0: never, and no quota."
        ),
    ] = 300.0
    quota_keys: Annotated[
        int, AtLeastNone, setting("Keys that one plugin may keep; 0: as many as it likes.")
    ] = 0
    quota_bytes: Annotated[
        int,
        AtLeastNone,
        setting("Bytes of keys and values that one plugin may keep; 0: as many as it likes."),
    ] = 0
    rate_per_second: Annotated[
        float,
        AtLeastNone,
        setting(
            "Operations that one plugin may ask for in a second, in the long run; 0: no limit."
        ),
    ] = 0.0
    rate_burst: Annotated[
        int, AtLeastNone, setting("Operations at once within that rate; 0: one second's.")
    ] = 0
    slow_ms: Annotated[
        float, Positive, setting("An operation that takes longer is logged as a warning.")
    ] = 100.0
    reply_bytes_max: Annotated[
        int,
        Positive,
        setting(
            "A page is cut where its answer would be larger; NATS lets 1 MiB through by default."
        ),
    ] = 1_000_000
    heartbeat_seconds: Annotated[
        float,
        Positive,
        setting("How often a watch says that it is alive, and asks whether anybody listens."),
    ] = 5.0
    jwt_tenant_claims: Annotated[
        tuple[str, ...],
        setting(
            "The claims that may name the operator. The first that a token has counts, and no other."
        ),
    ] = ("sub",)
    jwt_scopes: Annotated[
        tuple[str, ...],
        setting(
            "The scopes of a token that has no claim `scope`; `operator` opens the operator's view."
        ),
    ] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_prefixes()
        if not self.census_seconds and (self.quota_keys or self.quota_bytes):
            raise UsageError(
                "A plugin's quota needs the census, which gives back the room of expired keys: set rosey.census_seconds.",
                census_seconds=self.census_seconds,
                quota_keys=self.quota_keys,
                quota_bytes=self.quota_bytes,
            )

    def _check_prefixes(self) -> None:
        """Where one begins with another, the service would hear its own changes as requests, answer half of the requests to
        the longer one by the shorter, and a plugin that is called like the difference could speak as any other."""
        served = [*self.prefixes, self.changes_prefix]
        for number, one in enumerate(served):
            for other in (*served[:number], *served[number + 1 :]):
                if f"{other}.".startswith(f"{one}."):
                    raise UsageError(
                        "Requests and changes are told apart by how their subjects begin: let none of prefixes and "
                        "changes_prefix begin with another.",
                        prefix=one,
                        other=other,
                    )
