"""`keyhouse describe`: a keyspace as the document that its designers would have written, made from the code."""

from typing import Annotated

import typer

from keyhouse.cli.output import show_json, show_markdown
from keyhouse.cli.target import SYSTEM_HELP, system_names, target


def describe(
    system: Annotated[str, typer.Argument(help=SYSTEM_HELP, autocompletion=system_names)],
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Print a keyspace as a document: its keys, values, derived rows, lifetimes and migrations."""
    from keyhouse.cli.markdown import document
    from keyhouse.schema import description

    chosen = target(system)
    doc = description.prose(chosen.doc).partition("\n")[0]
    schemas = [description.describe(schema) for schema in chosen.schemas]
    if json:
        show_json({"name": chosen.name, "title": chosen.title, "doc": doc, "schemas": schemas})
    else:
        show_markdown(document(chosen.title, doc, schemas))
