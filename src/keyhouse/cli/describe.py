"""`keyhouse describe`: a keyspace as the document that its designers would have written, made from the code."""

from enum import StrEnum
from typing import Annotated

import typer

from keyhouse.cli.options import Json, SystemName, examples
from keyhouse.cli.output import show_json, show_markdown, visible
from keyhouse.cli.target import target


class Form(StrEnum):
    MARKDOWN = "markdown"
    JSON = "json"
    JSON_SCHEMA = "json-schema"
    MERMAID = "mermaid"
    DOT = "dot"


@examples(
    "keyhouse describe audiobooks",
    "keyhouse describe audiobooks --as json-schema > audiobooks.schema.json",
    "keyhouse describe history --as dot | dot -Tsvg > history.svg",
)
def describe(
    system: SystemName,
    form: Annotated[
        Form,
        typer.Option(
            "--as",
            metavar="FORM",
            help="`markdown` for people; `json`, all of it; `json-schema`, its values; `mermaid` or `dot`, a diagram.",
        ),
    ] = Form.MARKDOWN,
    json: Json = False,
) -> None:
    """Print a keyspace as a document, as JSON or as a diagram.

    It has keys, values, derived rows, lifetimes and migrations, from the code.
    """
    from keyhouse.cli.diagram import dot, mermaid
    from keyhouse.cli.json_schema import json_schema
    from keyhouse.cli.markdown import document
    from keyhouse.schema import description

    chosen = target(system)
    doc = description.prose(chosen.doc).partition("\n")[0]
    schemas = [description.describe(schema) for schema in chosen.schemas]
    match Form.JSON if json and form is Form.MARKDOWN else form:
        case Form.JSON:
            show_json({"name": chosen.name, "title": chosen.title, "doc": doc, "schemas": schemas})
        case Form.JSON_SCHEMA:
            show_json(json_schema(chosen))
        case Form.MERMAID:
            print(visible(mermaid(schemas)), end="")
        case Form.DOT:
            print(visible(dot(chosen.name, schemas)), end="")
        case _:
            show_markdown(document(chosen.title, doc, schemas))
