"""The IAM policy that `keyhouse history iam` prints covers all calls of the service, no more."""

import asyncio
import json
import re
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiobotocore.client import AioBaseClient
from aiobotocore.session import get_session

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.engines.dynamodb import DynamoDBEngine
from keyhouse.engines.dynamodb.layout import layout_of
from keyhouse.service.registry import system_names
from keyhouse.settings.engine_urls import url_of
from keyhouse.store import Store, verify
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, dynamodb_server
from keyhouse_history.iam import iam_policy
from keyhouse_history.schema import SCHEMAS
from systems.history.tests.support.service import EXT, serving, viewing
from tests.docs.pages import DOCS, ROOT
from tests.serve.support.serve_process import serving as process
from tests.support.dynamodb_tables import settings
from tests.support.program import run

IN_TRANSACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}
"""The permission that each part of a transaction needs; a transaction itself needs none."""

NOT_SEEN = {"DescribeContinuousBackups"}
"""Allowed for `keyhouse doctor`."""


def needed(operation: str, parameters: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the permissions of a call, each with the resource below the account."""
    if "TransactItems" in parameters:
        return [
            (IN_TRANSACTIONS[kind], f"table/{item['TableName']}")
            for each in parameters["TransactItems"]
            for kind, item in each.items()
        ]
    if "RequestItems" in parameters:
        return [(operation, f"table/{table}") for table in parameters["RequestItems"]]
    index = f"/index/{parameters['IndexName']}" if "IndexName" in parameters else ""
    return [(operation, f"table/{parameters['TableName']}{index}")]


def allowed(policy: dict[str, Any], action: str, resource: str) -> bool:
    for statement in policy["Statement"]:
        if f"dynamodb:{action}" in statement["Action"]:
            for each in statement["Resource"]:
                name = each.partition("*:*:")[2]
                if name == resource or (name[-1] == "*" and resource.startswith(name[:-1])):
                    return True
    return False


def test_the_policy_allows_every_call_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    original = AioBaseClient._make_api_call

    async def recorded(self: Any, operation: str, parameters: Any) -> Any:
        calls.extend(needed(operation, parameters))
        return await original(self, operation, parameters)

    monkeypatch.setattr(AioBaseClient, "_make_api_call", recorded)
    where = settings(layout=layout_of("history"), native_ttl=True)

    async def opened(clock: ManualClock, **options: Any) -> Engine:
        return await DynamoDBEngine.open(where, clock=clock, **options)

    async def maintain(engine: Engine) -> None:
        await engine.sweep(limit=100)
        assert [each async for each in verify(Store(SCHEMAS[0], engine, "p"))] == []
        assert [space async for space in engine.spaces()] == ["p"]

    with serving(opened, tmp_path) as service:  # type: ignore[arg-type]
        created = set(calls)
        viewer = service.viewer("p")
        events = [{"assetId": f"a{n}", **viewing(n, 100 * (n % 2), ext=EXT)} for n in range(12)]
        viewer.ask("POST", "/events", json={"events": events})
        for facet in (
            "asset/all?limit=3",
            "show/1446/all",
            "sport/cricket/all?series=4&team=60091",
        ):
            assert viewer.listed(facet)
        viewer.ask("DELETE", "/assets/a1", status=204)
        with viewer.http.stream("GET", f"{viewer.path}/watch?since=0") as stream:
            assert next(stream.iter_lines())
        with service.client(sub="jobs", scope="history.service") as jobs:
            assert jobs.post("/profiles/p/reindex").status_code == 200
        service.on_engine(maintain)
        viewer.ask("DELETE", "", status=204)
    served = set(calls) - created
    policy = iam_policy(where.table, create=True)
    assert [each for each in sorted(set(calls)) if not allowed(policy, *each)] == []
    assert [each for each in sorted(served) if not allowed(iam_policy(where.table), *each)] == []
    stated = {action.partition(":")[2] for each in policy["Statement"] for action in each["Action"]}
    assert stated - {action for action, _ in calls} == NOT_SEEN


def test_an_existing_table_is_opened_without_the_right_to_create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = settings(layout=layout_of("history"))
    seen: set[str] = set()
    original = AioBaseClient._make_api_call

    async def main() -> None:
        await (await DynamoDBEngine.open(where, clock=ManualClock())).close()

        async def recorded(self: Any, operation: str, parameters: Any) -> Any:
            seen.add(operation)
            return await original(self, operation, parameters)

        monkeypatch.setattr(AioBaseClient, "_make_api_call", recorded)
        await (await DynamoDBEngine.open(where, clock=ManualClock())).close()

    asyncio.run(main())
    stated = {
        action.partition(":")[2]
        for each in iam_policy(where.table)["Statement"]
        for action in each["Action"]
    }
    assert seen <= stated


def test_the_documented_engine_names_the_tables_that_the_page_and_the_policy_name(
    tmp_path: Path,
) -> None:
    """The page's line made tables `history-history`, which `iam --table history` did not allow."""
    page = " ".join((Path(__file__).parents[1] / "README.md").read_text().split())
    line = r'`engine = "(\S+)"` in `\[history\]` creates the tables `([^`]+)` and `([^`]+)`'
    found = re.search(line, page)
    assert found is not None
    table, server = f"t{secrets.token_hex(8)}", dynamodb_server()
    url = found[1].replace("//history?", f"//{table}?")
    more = f"&endpoint={server.endpoint}"
    variables = {
        "KEYHOUSE_HISTORY_ENGINE": url + more,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": ACCESS_KEY,
    }

    async def tables() -> set[str]:
        region = dict(parse_qsl(urlsplit(url).query))["region"]
        async with get_session().create_client(
            "dynamodb",
            region_name=region,
            endpoint_url=server.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=ACCESS_KEY,
        ) as client:
            return set((await client.list_tables())["TableNames"])

    with process(tmp_path, "history", "--nats", "off", **variables) as running:
        assert running.get("/ready").status_code == 200
        named = {name.replace("history", table) for name in (found[2], found[3])}
        assert {name for name in asyncio.run(tables()) if name.startswith(table)} == named
    policy = json.loads(run("history", "iam", cwd=tmp_path, environment=variables).stdout)
    assert {
        resource.rpartition("/")[2]
        for each in policy["Statement"]
        for resource in each["Resource"]
        if "/index/" not in resource
    } == named


def documented_urls() -> list[tuple[str, str]]:
    """Return the engine URLs that the pages of the systems and the guides name, with a place."""
    found = []
    for path in sorted([*ROOT.glob("systems/*/README.md"), *(DOCS / "guides").glob("*.md")]):
        system = path.parent.name if path.parent.name in system_names() else "board"
        schemes = "sqlite|postgresql|rocksdb|nats|tls|dynamodb"
        for url in re.findall(rf"\b(?:{schemes}):[^\s`'\"]+", path.read_text()):
            if re.search(r"[?&](layout|bucket|prefix)=", url):
                found.append((system, url))
    return found


@pytest.mark.parametrize(("system", "url"), documented_urls())
def test_a_documented_url_that_names_its_place_is_used_as_it_is(system: str, url: str) -> None:
    assert url_of(system, url, alone=True) == url
