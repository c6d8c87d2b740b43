"""The configs of the document, as a client sends and lists them."""

import itertools
from typing import Any

import httpx

from keyhouse.schema import MILLISECONDS
from systems.streamkit.tests.support.service import Service
from systems.streamkit.tests.test_streamkit_schema import VALUES

NOW_TEXT = "2026-01-01T00:00:00.000Z"
CONFIGS = {record.name: value for record, value in VALUES[:-1]}
_NUMBERS = itertools.count(1)
DAY = 24 * 3_600


def now(service: Service) -> str:
    return MILLISECONDS.format(service.clock.now())


def sent(category: str, **changes: Any) -> dict[str, Any]:
    value = {
        name: part
        for name, part in CONFIGS[category].items()
        if name not in ("createdAt", "updatedAt")
    }
    return value | changes


def keys(panel: httpx.Client) -> list[str]:
    return [entry["key"] for entry in panel.get("/export").raise_for_status().json()]


def new_customer() -> str:
    """Return a customer that no other test has."""
    return f"c{next(_NUMBERS)}"
