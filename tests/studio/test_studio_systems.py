"""The Studio over the schemas of every system that ships with Keyhouse."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from keyhouse import load_system, open_engine
from keyhouse.engine import Batch, Put
from keyhouse.errors import NotFoundError
from keyhouse.http import make_app
from keyhouse.service.registry import system_names
from keyhouse.service.spec import Keyspace
from keyhouse.studio import Studio, StudioSettings, StudioSystem, SystemCatalog
from keyhouse.studio.rendering import record_segment
from tests.studio.support.library import SECRET, Library

SPACES = ("main", "trivia", "12", "default")
"""Names of spaces, of which each system takes one."""


@pytest.mark.parametrize("name", system_names())
def test_every_record_of_a_system_has_its_pages(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        engine, own = await open_engine("memory:"), await open_engine("memory:")
        keyspaces = [Keyspace(schema=each, engine=engine) for each in load_system(name).schemas]
        system = StudioSystem(name=name, title=name, engine="memory:", keyspaces=keyspaces)
        catalog = SystemCatalog([system])
        studio = Studio(catalog, own, tmp_path, StudioSettings(jwt_secret=SECRET))
        named = [each.schema.space.name for each in keyspaces if each.schema.space.name]
        spaces = named or [next(each for each in SPACES if has(catalog, system, each))]
        app = make_app([studio.spec()])
        served = Library(engine, studio, app, keyspaces[0].schema, spaces[0])
        for space in spaces:
            await engine.commit(space, Batch(puts=(Put("zz", b"1"),)))  # a space exists by its rows
        async with served.signed_in() as client:
            pages = [f"/studio/{name}/", f"/studio/{name}/schema", "/studio/jobs"]
            for space in spaces:
                base = f"/studio/{name}/{quote(space, safe='')}"
                pages += [f"{base}/", f"{base}/tree", f"{base}/verify", f"{base}/bulk?prefix=x"]
                for store in catalog.stores(system, space):
                    pages += [
                        f"{base}/{quote(record_segment(record.name), safe='')}"
                        for record in store.schema.records
                    ]
            assert len(pages) > 7
            for path in pages:
                page = await client.get(path)
                assert page.status_code == 200, (path, page.text)
        await engine.close()
        await own.close()

    asyncio.run(main())


def has(catalog: SystemCatalog, system: StudioSystem, space: str) -> bool:
    try:
        return bool(catalog.stores(system, space))
    except NotFoundError:
        return False
