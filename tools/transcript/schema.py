"""Requests to rosey and to the served schema: those of the transcript in `tests/service`."""

from pathlib import Path
from typing import Any

from keyhouse import Counter, Log
from keyhouse.auth import JwtSettings, mint
from tests.service.support import transcript_requests as requests
from tools.transcript.client import Recorder
from tools.transcript.kinds import SCHEMA
from tools.transcript.server import SECRET

__all__ = ["rosey_requests", "schema_requests", "token"]


def token(tenant: str, scopes: str | None = None) -> str:
    """Return a token; `scopes` None: of all that a token without scopes has."""
    settings = JwtSettings(jwt_secret=SECRET, jwt_tenant_claims=("sub",))
    return mint(settings, Path(), tenant, scopes=None if scopes is None else scopes.split())


def lines() -> list[dict[str, Any]]:
    on = requests.Requests("kinds")
    found: list[dict[str, Any]] = []
    for record in SCHEMA.records:
        if isinstance(record, Counter):
            found += requests.counter_requests(on, record)
        elif isinstance(record, Log):
            found += requests.log_requests(on, record)
        else:
            found += requests.record_requests(on, record)
    found += requests.batch_requests(on)
    found += requests.space_requests(on)
    return found


async def _play(recorder: Recorder, line: dict[str, Any], prefix: str) -> None:
    if "nats" in line:
        await recorder.nats(line["nats"], line.get("body", ""), line.get("reply_to", ""))
        return
    method, _, target = line["http"].partition(" ")
    who = "-"
    if "as" in line:
        who = f"ann: {line['as']}"
        recorder.values[who] = token("ann", line["as"])
    await recorder.http(who, method, prefix + target, line.get("body"), line.get("headers"))


async def schema_requests(recorder: Recorder) -> None:
    for line in lines():
        recorder.section = f"kinds: {line.get('http', line.get('nats', '')).split('?')[0]}"
        await _play(recorder, line, "/kinds")


async def rosey_requests(recorder: Recorder) -> None:
    for line in requests.rosey_requests():
        if not line["nats"].startswith("old."):
            recorder.section = f"rosey: {line['nats'].rpartition('.')[2]}"
            await _play(recorder, line, "")
