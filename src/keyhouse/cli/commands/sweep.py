"""`keyhouse sweep`: delete expired rows from the engine."""

import asyncio

from keyhouse.cli.options import Json, OptionalSystem, StoreName, examples
from keyhouse.cli.output import number, show
from keyhouse.cli.terminal import ProgressLine, interruptible


@examples("keyhouse sweep --store sqlite:bot.db", "keyhouse sweep rosey --json")
def sweep(
    system: OptionalSystem = None,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Delete expired rows from all spaces, in small batches.

    They are already invisible: this frees their space, and prunes the change log for watches. It
    runs while other programs write. A running service sweeps by itself. SYSTEM may be left out
    with --store, or if the settings of keyhouse serve name only one.
    """
    with interruptible("Rows already deleted stay deleted. Run it again for the rest."):
        rows = asyncio.run(_sweep(system, store))
    show({"rows": rows}, lambda _: f"Deleted {number(rows, 'expired row')}.", json=json)


async def _sweep(system: str | None, store: str | None) -> int:
    from keyhouse.cli.target import engine_at, store_url
    from keyhouse.store import sweep

    with ProgressLine() as line:
        async with engine_at(store_url(system, store), existing=True) as engine:
            return await sweep(
                engine, on_progress=lambda rows: line.update(f"{number(rows, 'row')} deleted")
            )
