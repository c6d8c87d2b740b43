"""`keyhouse streamkit`: what only this system has: its key migration, and the files of `wrangler`."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from keyhouse.cli.options import DataFolder, DryRun, Json, StoreUrl, Yes, examples
from keyhouse.cli.progress import Line

streamkit = typer.Typer(
    help="Key migration, and files for Cloudflare's wrangler.", no_args_is_help=True
)

CONFLICTS = 1
"""The exit code when something was left at its v1 key."""

Customers = Annotated[
    list[str] | None,
    typer.Option(
        "--customer", "-c", metavar="ID", help="Only this customer; may be given more than once."
    ),
]


@streamkit.command("migrate-keys")
@examples(
    "keyhouse streamkit migrate-keys --store sqlite:streamkit.db --dry-run",
    "keyhouse streamkit migrate-keys --data data --customer 12345",
)
def migrate_keys(
    customer: Customers = None,
    dry_run: DryRun = False,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Move every row from its v1 key to its v2 key.

    It copies, verifies, then deletes. The service may run meanwhile. Killed, it is run again and goes on; run twice, it
    changes nothing more. What stands at both keys and differs is left, and named. Exit code 1: something was left.
    """
    from keyhouse.cli.output import Report, number, show_json, show_reports

    moved = asyncio.run(_migrate_keys(customer, dry_run, store, data))
    if json:
        show_json(moved)
    else:
        copied, deleted = sum(each.copied for each in moved), sum(each.deleted for each in moved)
        done = (
            f"would be copied: {number(copied, 'row')}"
            if dry_run
            else f"{number(copied, 'row')} copied, {deleted:,} deleted"
        )
        left = [
            f"Left at its v1 key, because v2 holds something else: {key}"
            for each in moved
            for key in each.conflicts
        ]
        show_reports(
            [Report("Keys", "\n\n".join([f"{number(len(moved), 'customer')}, {done}.", *left]))]
        )
    if any(each.conflicts for each in moved):
        raise typer.Exit(CONFLICTS)


async def _migrate_keys(
    customers: list[str] | None, dry_run: bool, store: str | None, data: Path | None
) -> list[Any]:
    from keyhouse.cli.opening import opened
    from keyhouse.cli.output import number
    from keyhouse.cli.place import url_of
    from keyhouse.systems.streamkit.migration import customer_ids, migrate_keys

    moved = []
    with Line() as line:
        async with opened(url_of("streamkit", store, data), existing=True) as engine:
            names = customers or [name async for name in customer_ids(engine)]
            for place, name in enumerate(names, 1):
                where = f"customer {place:,} of {len(names):,}"

                def report(_: str, phase: str, rows: int, where: str = where) -> None:
                    line.say(f"{where}, {phase}: {number(rows, 'row')}")

                moved.append(await migrate_keys(engine, name, dry_run=dry_run, on_progress=report))
    return moved


@streamkit.command()
@examples(
    "keyhouse streamkit export --store sqlite:streamkit.db --to streamkit.json",
    "wrangler kv bulk put streamkit.json --binding STREAMKIT_KV",
)
def export(
    customer: Customers = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file to write; without it, standard output."),
    ] = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Write every config and scene as a file for wrangler.

    `wrangler kv bulk put` reads it, and so does the import here.
    """
    from keyhouse.cli.output import show_line

    count = asyncio.run(_export(customer, to, store, data))
    if json and to is not None:
        show_line({"entries": count})
    elif to is not None:
        print(f"{_entries(count)} written to {to}.")


async def _export(
    customers: list[str] | None, to: Path | None, store: str | None, data: Path | None
) -> int:
    import msgspec

    from keyhouse.cli.opening import opened, opened_file
    from keyhouse.cli.place import url_of
    from keyhouse.systems.streamkit.transfer import export_items

    count = 0
    async with opened(url_of("streamkit", store, data), existing=True) as engine:
        with (
            nullcontext(sys.stdout.buffer) if to is None else opened_file(to, "xb") as file,
            Line() as line,
        ):
            async for item in export_items(engine, customers or ()):
                file.write((b",\n" if count else b"[\n") + msgspec.json.encode(item))
                count += 1
                line.say(_entries(count))
            file.write(b"\n]\n" if count else b"[]\n")
    return count


@streamkit.command("import")
@examples(
    "keyhouse streamkit import --store sqlite:streamkit.db --from streamkit.json",
    "wrangler kv bulk get keys.json --binding STREAMKIT_KV > values.json",
    "keyhouse streamkit import --data keyhouse-data --from values.json",
)
def import_(
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="The file to read; without it, standard input."
        ),
    ] = None,
    keys: Annotated[
        Literal["v1", "v2"],
        typer.Option(metavar="VERSION", help="The version of the keys of what is new: v1 or v2."),
    ] = "v1",
    store: StoreUrl = None,
    data: DataFolder = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Put a file of wrangler's into the store.

    It asks first where it would replace something, unless --yes is given. The file is what `kv bulk put` reads, or
    `kv bulk get` writes; the times that it holds are kept. All of it is looked at first, and nothing is written when any
    of it is wrong. Cut off, it is run again.
    """
    from keyhouse.cli.output import Report, show_json, show_reports

    done = asyncio.run(_import(source, keys, store, data, yes))
    if json:
        show_json(done)
    else:
        others = f"there already: {done.unchanged:,}; expired meanwhile: {done.expired:,}"
        show_reports([Report("Imported", f"{_entries(done.written)} written; {others}.")])


async def _import(
    source: Path | None, keys: Literal["v1", "v2"], store: str | None, data: Path | None, yes: bool
) -> Any:
    from keyhouse.cli.asking import ask
    from keyhouse.cli.opening import opened, opened_file
    from keyhouse.cli.place import url_of
    from keyhouse.systems.streamkit.transfer import count_replaced, import_items, read_items

    with nullcontext(sys.stdin.buffer) if source is None else opened_file(source, "rb") as file:
        entries = read_items(file.read())
    async with opened(url_of("streamkit", store, data)) as engine:
        if not yes and (replaced := await count_replaced(engine, entries)):
            there = f"{_entries(replaced)} of the file will be put over what is there. There is no way back but a backup."
            ask(f"{there} Go on?", yes=False)
        return await import_items(engine, entries, keys=keys)


def _entries(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"
