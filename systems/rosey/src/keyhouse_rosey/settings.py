"""Settings of plugin storage: the table `[rosey]` of `keyhouse.toml`."""

from typing import Annotated

import msgspec

from keyhouse.errors import UsageError
from keyhouse.service.settings import RateBurst, RatePerSecond, TenantSettings, UsageScanSeconds
from keyhouse.settings import setting

__all__ = ["RoseySettings"]

Positive = msgspec.Meta(gt=0)
PREFIX = msgspec.Meta(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$(?!\n)")


class RoseySettings(TenantSettings, frozen=True, kw_only=True):
    prefixes: Annotated[
        tuple[Annotated[str, PREFIX], ...],
        msgspec.Meta(min_length=1),
        setting("Prefixes of the subjects: `db.kv.<plugin>.<operation>`."),
    ] = ("db.kv", "rosey.db.kv")
    changes_prefix: Annotated[
        str,
        PREFIX,
        setting("Changes may be published below `<changes_prefix>.<plugin>`."),
    ] = "db.changes"
    payload_prefix: Annotated[
        Annotated[str, PREFIX] | None,
        setting(
            "Also answer `<payload_prefix>.<operation>`, such as `rosey.db.kv.set`, with"
            " `plugin_name` in the body. A body can name any plugin."
        ),
    ] = None
    queue: Annotated[
        str, PREFIX, setting("Queue group shared by the processes of one service.")
    ] = "rosey"
    usage_scan_seconds: UsageScanSeconds = 300.0
    rate_per_second: RatePerSecond = 5_000.0
    rate_burst: RateBurst = 20_000
    reply_bytes_max: Annotated[
        int,
        Positive,
        setting("Size at which a page is cut; the default limit of NATS is 1 MiB."),
    ] = 1_000_000
    heartbeat_seconds: Annotated[
        float,
        Positive,
        setting("Interval of a watch's heartbeats, which also stop a watch without a listener."),
    ] = 5.0

    def __post_init__(self) -> None:
        self._check_prefixes()
        self._check_payload_prefix()

    def _check_payload_prefix(self) -> None:
        """Reject a prefix whose subjects another subscription receives too."""
        own = self.payload_prefix
        for other in () if own is None else (*self.prefixes, self.changes_prefix):
            begins = f"{other}.".startswith(f"{own}.") or f"{own}.".startswith(f"{other}.")
            if begins and (own != other or other == self.changes_prefix):
                raise UsageError(
                    "payload_prefix must be one of prefixes, or share no beginning with them and "
                    "changes_prefix.",
                    payload_prefix=own,
                    other=other,
                )

    def _check_prefixes(self) -> None:
        """Reject a prefix that begins with another: the service would receive its own changes as
        requests, and a plugin named like the difference could act as any other."""
        prefixes = [*self.prefixes, self.changes_prefix]
        for number, one in enumerate(prefixes):
            for other in (*prefixes[:number], *prefixes[number + 1 :]):
                if f"{other}.".startswith(f"{one}."):
                    raise UsageError(
                        "One of prefixes and changes_prefix begins with another: requests and "
                        "changes could not be distinguished.",
                        prefix=one,
                        other=other,
                    )
