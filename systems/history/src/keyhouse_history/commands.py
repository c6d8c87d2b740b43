"""`keyhouse history`: import of entries, and the IAM policy for DynamoDB."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from keyhouse.cli.files import open_file
from keyhouse.cli.options import Json, StoreName, examples
from keyhouse.cli.output import Report, show_json, show_reports
from keyhouse.cli.target import data_folder, engine_at, serve_settings, store_url
from keyhouse.cli.terminal import ProgressLine

NAME = "history"
REJECTED = 1
"""Exit code when a line was rejected."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def history() -> None:
    """Import of entries, and the IAM policy for DynamoDB."""


@app.command("import")
@examples(
    "keyhouse history import old.jsonl --store sqlite:h.db?layout=history",
    "keyhouse history import entries.jsonl --profile p1",
)
def import_(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file. Default: standard input.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="ID", help="The profile of lines without profileId."),
    ] = None,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Import entries, one JSON object on each line.

    A line is an entry with its profileId, as the API returns it or as a flat item of DynamoDB. Old
    forms are read too: durations such as PT1H50M4S, and states such as "In progress". Each line is
    stored by the rules for events, so a file can be imported again, also into a history in use.
    Lines that are rejected are listed, and the others imported. Exit code 1: some were rejected.
    completed_percent and entries_max are those of the settings of keyhouse serve.
    """
    done = asyncio.run(_import(file, profile, store))
    if json:
        show_json(done)
    else:
        counts = (
            f"{done.applied:,} applied, {done.unchanged:,} unchanged,"
            f" {len(done.rejected):,} rejected."
        )
        if done.too_old:
            counts += (
                f" {done.too_old:,} not stored: older than all of a full profile (entries_max)."
            )
        lines = [f"Line {each.line}: {each.error}" for each in done.rejected]
        show_reports([Report("Imported", "\n\n".join([counts, *lines]))])
    if done.rejected:
        raise typer.Exit(REJECTED)


async def _import(path: Path | None, profile: str | None, store: str | None) -> Any:
    from keyhouse.settings import read_settings
    from keyhouse_history.settings import HistorySettings
    from keyhouse_history.transfer import import_lines

    loaded = serve_settings(NAME, data_folder(store))
    settings = read_settings(HistorySettings, loaded.tables[NAME], table=NAME)
    with nullcontext(sys.stdin.buffer) if path is None else open_file(path, "rb") as file:
        async with engine_at(store_url(NAME, store)) as engine:
            with ProgressLine() as line:

                def report(count: int) -> None:
                    line.update(f"{count:,} lines")

                return await import_lines(
                    engine, file, profile=profile, settings=settings, on_progress=report
                )


@app.command()
@examples(
    "keyhouse history iam --table history",
    "keyhouse history iam --region eu-central-1 --account 123456789012",
)
def iam(
    table: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The table. [of the settings' engine, else history]"),
    ] = None,
    region: Annotated[str, typer.Option(metavar="NAME", help="Its region.")] = "*",
    account: Annotated[str, typer.Option(metavar="ID", help="Its account.")] = "*",
    create: Annotated[
        bool, typer.Option("--create", help="Also allow to create the tables.")
    ] = False,
) -> None:
    """Print the IAM policy that the service needs for its tables on DynamoDB.

    It is JSON for the AWS console, or for `aws iam create-policy --policy-document`.
    """
    from keyhouse_history.iam import iam_policy

    show_json(
        iam_policy(table or _configured_table(), region=region, account=account, create=create)
    )


def _configured_table() -> str:
    """Return the table that `serve` uses by its settings here; `history` if it uses none."""
    loaded = serve_settings(NAME)
    url = urlsplit(loaded.engine_url(NAME, alone=loaded.settings.systems == (NAME,)))
    return url.netloc if url.scheme == "dynamodb" else NAME
