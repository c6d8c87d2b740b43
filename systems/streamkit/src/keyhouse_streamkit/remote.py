"""A customer's data through the service: `keyhouse list streamkit --store http://host:8080
--token …`.

The API addresses a config by type and id, at either version of its key. It reports the revision of
one config; a list of all data comes from the export, which is in no key order and has no revisions.
"""

import asyncio
from typing import Any

import msgspec

from keyhouse.advice import service_url
from keyhouse.errors import NotFoundError, UnknownOutcomeError, UsageError
from keyhouse.schema import Record
from keyhouse.service.http_client import tenant_of_token, translated
from keyhouse.service.remote import RemoteRow
from keyhouse.service.row_remote import ListedRemote
from keyhouse.store import Unset
from keyhouse_streamkit.client import FetchedConfig, Streamkit
from keyhouse_streamkit.keys import find_record
from keyhouse_streamkit.schema import SCENE_ACTIVITY
from keyhouse_streamkit.wrangler import Item

__all__ = ["connect", "space_of"]


async def connect(url: str, space: str, token: str | None) -> "ConfigRemote":
    """Return the remote of one customer. `token` is that customer's. Sends nothing yet."""
    url = service_url(url, "/streamkit")
    if token is None:
        raise UsageError(
            "Streamkit requires a token: --token, or KEYHOUSE_TOKEN; `keyhouse token` makes one."
        )
    customer = space_of(token)
    if customer != space:
        raise UsageError("The token is another customer's.", customer=customer, space=space)
    return ConfigRemote(Streamkit(url, token=token))


def space_of(token: str) -> str:
    return tenant_of_token(token, system="streamkit --customer ID")


class ConfigRemote(ListedRemote[Streamkit]):
    no_watch = (
        "Streamkit's API has no watch: watch the rows, with the engine or the data folder as"
        " --store."
    )

    async def get(self, key: str) -> RemoteRow | None:
        config = _find_config(key)
        if config is None:
            return next((row for row in await self.all_rows() if row.key == key), None)
        record, id = config
        with translated():
            try:
                found = await asyncio.to_thread(self._client.get, record.type, id)
            except NotFoundError:
                return None
        return _row(key, record, found)

    async def put(
        self, key: str, value: bytes, *, ttl: int | None, expect: int | Unset | None
    ) -> RemoteRow:
        record, id = _require_config(key)
        if ttl is not None:
            raise UsageError("A config has no time to live.", key=key)
        config = record.json.parse(value)
        if config.id != id:
            raise UsageError(
                "The id in the value differs from the id in the key.", key=key, id=config.id
            )
        with translated(UnknownOutcomeError):
            found = await asyncio.to_thread(self._put, config, expect)
        return _row(key, record, found)

    def _put(self, config: Any, expect: int | Unset | None) -> FetchedConfig[Any]:
        if isinstance(expect, int):
            return self._client.replace(config, if_match=_etag(expect))
        if expect is None:
            return self._client.create(config)
        try:
            return self._client.replace(config)
        except NotFoundError:
            return self._client.create(config)

    async def delete(self, key: str, *, expect: int | Unset | None) -> bool:
        record, id = _require_config(key)
        if expect is None:
            raise UsageError("A delete cannot expect an absent config: name its revision.", key=key)
        tag = _etag(expect) if isinstance(expect, int) else None
        with translated(UnknownOutcomeError):
            return await asyncio.to_thread(self._client.delete, record.type, id, if_match=tag)

    def read_all(self) -> list[RemoteRow]:
        items = msgspec.json.decode(self._client.export(), type=list[Item])
        return [
            RemoteRow(
                str(each.key),
                str(each.value).encode(),
                expires=None if each.expiration is None else each.expiration * 1_000,
            )
            for each in items
        ]


def _find_config(key: str) -> tuple[Record[Any], str] | None:
    """Return the record and id of a config's key; None for a scene's."""
    match = find_record(key)
    return None if match is None or match[0] is SCENE_ACTIVITY else (match[0], match[2])


def _require_config(key: str) -> tuple[Record[Any], str]:
    config = _find_config(key)
    if config is None:
        raise UsageError("Scenes are counted by the service, and cannot be written.", key=key)
    return config


def _row(key: str, record: Record[Any], config: FetchedConfig[Any]) -> RemoteRow:
    return RemoteRow(key, record.json.encode(config.value), int(config.etag.strip('"')), None)


def _etag(revision: int) -> str:
    return f'"{revision}"'
