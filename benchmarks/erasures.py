"""Case 17: erasing one tenant of many, and what the others notice.

The cost should grow with the tenant: the baseline erases the same among a hundredth of the tenants.
`by hand` deletes the rows in one commit, which leaves them in the files and in the log of changes.
17b is the p99 of another tenant's writes during erasures, against the same without them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from keyhouse.bench.comparison import Measurement, compare, percentile
from keyhouse.bench.result import Result
from keyhouse.engine import Batch, Engine, Put
from keyhouse.engines.dynamodb import DynamoDBEngine, Settings
from keyhouse.engines.registry import open_engine
from keyhouse.nats.server import NatsServer
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, DynamoDBServer
from keyhouse.testing.servers.postgres import PostgresServer

ROWS: Final = 100
ROWS_AT_ONCE: Final = 50
FILLED_AT_ONCE: Final = 16
FEWER: Final = 100
VALUE: Final = b'{"title":"' + b"v" * 100 + b'"}'
KEYS: Final = [f"row-{number:03d}" for number in range(ROWS)]

Open = Callable[[str], Awaitable[Engine]]


@asynccontextmanager
async def _opener(name: str, folder: Path) -> AsyncIterator[Open]:
    """Yield a function that opens an empty store of a name; stops its server at the end."""
    if name == "postgres":
        postgres = PostgresServer()
        yield lambda store: open_engine(f"{postgres.url}&layout={store}").__aenter__()
        postgres.close()
    elif name == "jetstream":
        nats = NatsServer(folder)
        nats.start()
        nats.ready()
        url = f"{nats.url}/?sync=always&bucket="
        yield lambda store: open_engine(url + store).__aenter__()
        nats.stop()
    elif name == "dynamodb":
        dynamodb = DynamoDBServer()
        yield lambda store: DynamoDBEngine.open(
            Settings(
                table=store,
                region=REGION,
                endpoint=dynamodb.endpoint,
                access_key_id=ACCESS_KEY,
                secret_access_key=ACCESS_KEY,
            )
        )
        dynamodb.close()
    else:
        yield lambda store: open_engine(f"{name}:{folder}/{store}").__aenter__()


async def _fill(engine: Engine, space: str) -> None:
    for start in range(0, ROWS, ROWS_AT_ONCE):
        puts = tuple(Put(key, VALUE) for key in KEYS[start : start + ROWS_AT_ONCE])
        await engine.commit(space, Batch(puts=puts))


async def _fill_many(engine: Engine, spaces: list[str]) -> None:
    names = iter(spaces)

    async def fill() -> None:
        for name in names:
            await _fill(engine, name)

    await asyncio.gather(*(fill() for _ in range(FILLED_AT_ONCE)))


async def measure(name: str, folder: Path, rounds: int, tenants: int) -> list[Result]:
    async with _opener(name, folder) as opened:
        many, few = await opened("many"), await opened("few")
        await _fill_many(many, [f"t{number}" for number in range(tenants)])
        await _fill_many(few, [f"t{number}" for number in range(tenants // FEWER)])
        for engine in (many, few):
            gone = [f"gone-{number}" for number in range(rounds)]
            await _fill_many(engine, gone + [f"{each}-hand" for each in gone])
        results = [await _speed(name, many, few, rounds, tenants)]
        results.append(await _others(name, many, rounds))
        for engine in (many, few):
            await engine.close()
    return results


async def _speed(name: str, many: Engine, few: Engine, rounds: int, tenants: int) -> Result:
    numbers = {kind: iter(range(rounds)) for kind in ("ours", "baseline", "by hand")}

    async def erase(engine: Engine, kind: str) -> int:
        await engine.forget(f"gone-{next(numbers[kind])}")
        return 1

    async def delete() -> int:
        space = f"gone-{next(numbers['by hand'])}-hand"
        for start in range(0, ROWS, ROWS_AT_ONCE):
            await many.commit(space, Batch(deletes=tuple(KEYS[start : start + ROWS_AT_ONCE])))
        return 1

    measured = await compare(
        {
            "ours": lambda: erase(many, "ours"),
            "baseline": lambda: erase(few, "baseline"),
            "by hand": delete,
        },
        rounds=rounds,
    )
    return Result(
        case=f"17 {name}",
        work=f"erase a tenant of {ROWS} rows, of {tenants:,}; the baseline: of {tenants // FEWER}",
        unit="tenants/s",
        measurements=list(measured.values()),
        goal=0.50,
    )


async def _others(name: str, engine: Engine, rounds: int) -> Result:
    """Compare the p99 of a tenant's writes while others are erased with the p99 without that."""

    async def period(work: Coroutine[Any, Any, object]) -> float:
        done, latencies = asyncio.ensure_future(work), list[float]()
        while not done.done() or len(latencies) < 20:
            start = time.perf_counter()
            await engine.commit("neighbour", Batch(puts=(Put("k", VALUE),)))
            latencies.append(time.perf_counter() - start)
        await done
        return percentile(latencies, 99)

    calm: list[float] = []
    busy: list[float] = []
    for number in range(rounds):
        await _fill(engine, f"later-{number}")
        calm.append(await period(asyncio.sleep(0.5)))
        busy.append(await period(engine.forget(f"later-{number}")))
    speeds = {"ours": [1 / p99 for p99 in busy], "baseline": [1 / p99 for p99 in calm]}
    return Result(
        case=f"17b {name}",
        work="another tenant's write during that: 1/p99, against the same without it",
        unit="1/s",
        measurements=[
            Measurement(kind, sorted(each)[len(each) // 2], each) for kind, each in speeds.items()
        ],
        goal=0.33,
    )
