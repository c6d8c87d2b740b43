"""The HTTP routes, in the order of the document. A handler reads the request, calls an operation,
and shapes the response.

The customer is the caller's tenant and comes from nowhere else.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from keyhouse.auth import Caller
from keyhouse.errors import ConflictError, KeyFieldError, NotFoundError, QuotaError, RevisionError
from keyhouse.http import (
    Conditions,
    Response,
    ResponseSpec,
    Route,
    RouteGroup,
    Stream,
    etag,
    json_array,
    page_response,
)
from keyhouse.service.bulk_import import collect_entries, import_entries
from keyhouse.service.runtime import ServiceRuntime
from keyhouse.store import Store
from keyhouse_streamkit import configs, messages
from keyhouse_streamkit.messages import CONFIG_EXAMPLE, EXAMPLES, Config, Type
from keyhouse_streamkit.scenes import Scenes, top_scenes
from keyhouse_streamkit.schema import SCHEMAS
from keyhouse_streamkit.tenants import Customer
from keyhouse_streamkit.transfer import export_customer
from keyhouse_streamkit.wrangler import File, Item, json_part, parse

READ: Final = "read"
WRITE: Final = "write"

_encode = msgspec.json.Encoder().encode


class Handlers:
    def __init__(self, runtime: ServiceRuntime[Customer]) -> None:
        self._customer = runtime.tenants.get
        self._engine = runtime.engine
        self._scenes = Scenes(runtime.tenants)

    async def create(
        self, type: Type, body: Config, caller: Caller
    ) -> Response[messages.SavedReply]:
        """Create a config. Its id is the one sent, or generated; its times and owner are set by the
        server."""
        stored = await configs.create(self._customer(caller.tenant), type, body)
        location = f"{type}/{quote(stored.id)}"  # relative: the app may be mounted anywhere
        return Response(
            messages.SavedReply(True, msgspec.Raw(stored.value)),
            status=201,
            headers=(("Location", location),),
            etag=stored.revision,
        )

    async def list(
        self, type: Type, query: messages.ListQuery, caller: Caller
    ) -> Response[messages.ConfigList]:
        """List the configs of a type in the order of their ids: all, a page, or those updated since
        a time."""
        customer = self._customer(caller.tenant)
        async with customer.lists:
            page = await configs.list_configs(
                customer,
                type,
                limit=query.limit,
                cursor=query.cursor,
                since=query.since,
                ids_only=query.fields == "ids",
            )
        items = [msgspec.Raw(value or _encode({"id": id})) for id, value in page.configs]
        listed = messages.ConfigList(items, len(items), page.cursor or msgspec.UNSET)
        return await page_response(listed, "configs")

    async def get(self, type: Type, id: str, caller: Caller) -> Response[messages.ConfigJson]:
        """Return one config, with its `ETag`."""
        row = await configs.read(self._customer(caller.tenant), type, id)
        return Response(row.value, etag=row.revision)  # type: ignore[arg-type]  # the stored JSON is the body

    async def replace(
        self, type: Type, id: str, body: Config, caller: Caller, conditions: Conditions
    ) -> Response[messages.SavedReply]:
        """Replace a config; `createdAt` stays. With `If-Match`: only if its ETag is still that
        one."""
        customer = self._customer(caller.tenant)
        stored = await configs.replace(customer, type, id, body, conditions.check)
        reply = messages.SavedReply(True, msgspec.Raw(stored.value))
        return Response(reply, etag=stored.revision)

    async def delete(
        self, type: Type, id: str, caller: Caller, conditions: Conditions
    ) -> messages.DeletedReply:
        """Delete a config. Succeeds if it does not exist."""
        customer = self._customer(caller.tenant)
        deleted = await configs.delete(customer, type, id, conditions.check)
        return messages.DeletedReply(True, deleted)

    async def batch(
        self, type: Type, body: messages.BatchRequest, caller: Caller
    ) -> messages.BatchReply:
        """Apply many creates, updates and deletes of configs of one type: all of them, or none."""
        customer = self._customer(caller.tenant)
        results = await configs.apply_batch(customer, type, body.operations, etag)
        return messages.BatchReply(True, [_batch_result(each) for each in results])

    async def record(self, body: messages.SceneSwitch, caller: Caller) -> messages.SceneSwitchReply:
        """Count a switch to a scene. A scene expires 30 days after its last switch."""
        scene = await self._scenes.record(caller.tenant, body.scene_name)
        return messages.SceneSwitchReply(True, scene.scene_name, scene.count, scene.last_used)

    async def top(self, query: messages.TopQuery, caller: Caller) -> messages.TopScenes:
        """List the scenes with most switches."""
        customer = self._customer(caller.tenant)
        async with customer.lists:
            top = await top_scenes(customer, query.limit)
        scenes = [messages.SceneCount(each.scene_name, each.count, each.last_used) for each in top]
        return messages.TopScenes(scenes, len(scenes))

    async def export(self, caller: Caller) -> Response[Stream]:
        """Export all of the customer's data, as a file for `wrangler kv bulk put` and `POST
        /import`."""
        items = export_customer(self._customer(caller.tenant).store)
        name = (("Content-Disposition", 'attachment; filename="streamkit.json"'),)
        return Response(json_array(items), headers=name)

    async def load(self, body: File, caller: Caller) -> messages.ImportReply:
        """Import an export over stored data, with its times. Nothing is written if any entry is
        invalid."""
        entries = await collect_entries(parse(body, self._engine.clock.now()))
        counts = await import_entries(self._customer(caller.tenant), entries)
        return messages.ImportReply(True, counts.written, counts.unchanged, counts.expired)

    async def health(self) -> messages.HealthReply:
        """Check that the store responds."""
        await Store(SCHEMAS[0], self._engine, "health").row("health")
        return messages.HealthReply("ok")


def routes(runtime: ServiceRuntime[Customer]) -> Mapping[str, Route]:
    """Return the routes by operation."""
    on = Handlers(runtime)
    saved = {"success": True, "config": CONFIG_EXAMPLE}
    tag = {"ETag": "State of the config, for If-Match and If-None-Match."}
    created = ResponseSpec(
        type=messages.SavedReply,
        about="Created.",
        example=saved,
        headers={"Location": "Address of the config.", **tag},
    )
    replaced = ResponseSpec(type=messages.SavedReply, example=saved, headers=tag)
    config = ResponseSpec(type=messages.ConfigJson, example=CONFIG_EXAMPLE, headers=tag)
    exported = ResponseSpec(type=list[Item], about="One entry for each config and each scene.")
    write_errors = [QuotaError, KeyFieldError]
    quota = runtime.quota.bytes
    file_bytes_max = 2 * quota + 1_024 * 1_024 if quota else None  # text grows when it is escaped
    batch_example = [
        {"op": "create", "config": EXAMPLES["notes"]},
        {"op": "delete", "id": "old"},
    ]
    import_example = {
        "key": "cust_12345_streamkit_notes_note1",
        "value": msgspec.json.encode(CONFIG_EXAMPLE).decode(),
    }
    api = RouteGroup()
    return {
        "create": api.post(
            "/configs/{type}",
            on.create,
            scope=WRITE,
            replies={201: created},
            problems=[ConflictError, *write_errors],
            example=EXAMPLES["notes"],
        ),
        "list": api.get("/configs/{type}", on.list, scope=READ),
        "get": api.get(
            "/configs/{type}/{id}",
            on.get,
            scope=READ,
            replies={200: config},
            problems=[NotFoundError],
        ),
        "replace": api.put(
            "/configs/{type}/{id}",
            on.replace,
            scope=WRITE,
            replies={200: replaced},
            problems=[NotFoundError, RevisionError, *write_errors],
            example=EXAMPLES["notes"],
        ),
        "delete": api.delete(
            "/configs/{type}/{id}",
            on.delete,
            scope=WRITE,
            problems=[RevisionError],
        ),
        "batch": api.post(
            "/configs/{type}:batch",
            on.batch,
            scope=WRITE,
            problems=[NotFoundError, ConflictError, RevisionError, *write_errors],
            example={"operations": batch_example},
            body_bytes_max=file_bytes_max,
        ),
        "record_scene": api.post(
            "/scene-activity/record",
            on.record,
            scope=WRITE,
            problems=write_errors,
            example={"sceneName": "Gaming Scene"},
        ),
        "top_scenes": api.get("/scene-activity/top", on.top, scope=READ),
        "export": api.get(
            "/export",
            on.export,
            scope=READ,
            replies={200: exported},
        ),
        "import": api.post(
            "/import",
            on.load,
            scope=WRITE,
            problems=write_errors,
            example=[import_example],
            body_bytes_max=file_bytes_max,
            extract_json=json_part,
        ),
        "health": api.get("/health", on.health),
    }


def _batch_result(result: configs.OperationResult) -> messages.BatchResult:
    if result.value is None:
        return messages.BatchResult("delete", result.id, deleted=result.deleted)
    config = msgspec.Raw(result.value)
    return messages.BatchResult(
        "create" if result.op == "create" else "update", result.id, config=config
    )
