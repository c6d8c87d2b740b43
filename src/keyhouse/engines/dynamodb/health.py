"""Health checks of the DynamoDB table: address, state, protection and clock.

The service has no version and is always durable. Checks that the user has no permission for are
skipped.
"""

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from keyhouse.engines.dynamodb.engine import create_client
from keyhouse.engines.dynamodb.error_map import translate
from keyhouse.engines.dynamodb.settings import Settings
from keyhouse.engines.health import HealthCheck, clock_skew, format_size, measured

CLOCK_SECONDS_MAX: Final = 3.0
"""The service reports whole seconds. Beyond 15 minutes it rejects every request."""


async def check_health(url: str) -> list[HealthCheck]:
    settings = Settings.of(url)
    client = await create_client(settings)
    try:
        before = time.time()
        answer = await client.describe_table(TableName=settings.table)
        between = (before + time.time()) / 2
        return [
            *_table(settings, answer["Table"]),
            *_clock(answer, between),
            *await _backups(client, settings.table),
            *await _ttl(client, settings),
        ]
    except (ClientError, BotoCoreError) as error:
        raise translate(error, settings.table) from error
    finally:
        await client.close()


def _table(settings: Settings, table: dict[str, Any]) -> list[HealthCheck]:
    where = settings.endpoint or f"AWS {settings.region or 'in the region of the environment'}"
    name, state = table["TableName"], table["TableStatus"]
    size = format_size(table.get("TableSizeBytes", 0))
    checks = [
        measured("DynamoDB", f"{where}, through aiobotocore {version('aiobotocore')}"),
        measured("durability", "acknowledged commits are on several disks; reads are consistent"),
        measured(
            "table",
            f"{name}, {state}, {size} some hours ago",
            "Wait until it is ACTIVE, or check it in the AWS console.",
            bad=state != "ACTIVE",
        ),
    ]
    if not table.get("DeletionProtectionEnabled", True):
        fix = f"aws dynamodb update-table --table-name {name} --deletion-protection-enabled"
        checks.append(measured("deletion protection", "off", fix, warn=True))
    return checks


def _clock(answer: dict[str, Any], between: float) -> Iterator[HealthCheck]:
    described = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if described:
        ahead = parsedate_to_datetime(described).timestamp() + 0.5 - between
        yield clock_skew(ahead, within=CLOCK_SECONDS_MAX)


async def _backups(client: Any, table: str) -> list[HealthCheck]:
    try:
        answer = await client.describe_continuous_backups(TableName=table)
    except (ClientError, BotoCoreError):
        return []
    described = answer.get("ContinuousBackupsDescription", {})
    recovery = described.get("PointInTimeRecoveryDescription", {})
    is_on = recovery.get("PointInTimeRecoveryStatus") == "ENABLED"
    fix = (
        f"aws dynamodb update-continuous-backups --table-name {table} "
        "--point-in-time-recovery-specification PointInTimeRecoveryEnabled=true; "
        "or run `keyhouse backup` each night."
    )
    return [measured("point-in-time recovery", "on" if is_on else "off", fix, warn=not is_on)]


async def _ttl(client: Any, settings: Settings) -> list[HealthCheck]:
    try:
        answer = await client.describe_time_to_live(TableName=settings.table)
    except (ClientError, BotoCoreError):
        return []
    described, name = answer.get("TimeToLiveDescription", {}), settings.layout.ttl
    is_on = (
        described.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        and described.get("AttributeName") == name
    )
    fix = (
        f"aws dynamodb update-time-to-live --table-name {settings.table} "
        f"--time-to-live-specification Enabled=true,AttributeName={name}; "
        "until then only a sweep deletes expired rows."
    )
    return [measured("time to live", f"on, by {name}" if is_on else "off", fix, warn=not is_on)]
