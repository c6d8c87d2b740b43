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
from keyhouse.engines.health import HealthCheck, clock_skew, format_size

CLOCK_SECONDS_MAX: Final = 3.0
"""The service reports whole seconds. Beyond 15 minutes it rejects every request."""


async def check_health(url: str) -> list[HealthCheck]:
    settings = Settings.of(url)
    client = await create_client(settings)
    try:
        before = time.time()
        answer = await client.describe_table(TableName=settings.table)
        between = (before + time.time()) / 2
        facts = [*_client(settings), *_table(answer["Table"]), *_clock(answer, between)]
        return [*facts, *await _backups(client, settings.table), *await _ttl(client, settings)]
    except (ClientError, BotoCoreError) as error:
        raise translate(error, settings.table) from error
    finally:
        await client.close()


def _client(settings: Settings) -> Iterator[HealthCheck]:
    where = settings.endpoint or f"AWS {settings.region or 'in the region of the environment'}"
    yield HealthCheck("DynamoDB", f"{where}, through aiobotocore {version('aiobotocore')}")
    yield HealthCheck(
        "durability", "acknowledged commits are on several disks; reads are consistent"
    )


def _table(table: dict[str, Any]) -> Iterator[HealthCheck]:
    state = table["TableStatus"]
    size = format_size(table.get("TableSizeBytes", 0))
    value = f"{table['TableName']}, {state}, {size} some hours ago"
    if state != "ACTIVE":
        yield HealthCheck(
            "table", value, "bad", "Wait until it is ACTIVE, or check it in the AWS console."
        )
    else:
        yield HealthCheck("table", value)
    if "DeletionProtectionEnabled" in table and not table["DeletionProtectionEnabled"]:
        fix = (
            f"aws dynamodb update-table --table-name {table['TableName']} "
            "--deletion-protection-enabled"
        )
        yield HealthCheck("deletion protection", "off", "warn", fix)


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
    described = answer.get("ContinuousBackupsDescription", {}).get(
        "PointInTimeRecoveryDescription", {}
    )
    if described.get("PointInTimeRecoveryStatus") == "ENABLED":
        return [HealthCheck("point-in-time recovery", "on")]
    fix = (
        f"aws dynamodb update-continuous-backups --table-name {table} "
        "--point-in-time-recovery-specification PointInTimeRecoveryEnabled=true; "
        "or run `keyhouse backup` each night."
    )
    return [HealthCheck("point-in-time recovery", "off", "warn", fix)]


async def _ttl(client: Any, settings: Settings) -> list[HealthCheck]:
    try:
        answer = await client.describe_time_to_live(TableName=settings.table)
    except (ClientError, BotoCoreError):
        return []
    described = answer.get("TimeToLiveDescription", {})
    if (
        described.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        and described.get("AttributeName") == settings.layout.ttl
    ):
        return [HealthCheck("time to live", f"on, by {settings.layout.ttl}")]
    fix = (
        f"aws dynamodb update-time-to-live --table-name {settings.table} "
        f"--time-to-live-specification Enabled=true,AttributeName={settings.layout.ttl}; "
        "until then only a sweep deletes expired rows."
    )
    return [HealthCheck("time to live", "off", "warn", fix)]
