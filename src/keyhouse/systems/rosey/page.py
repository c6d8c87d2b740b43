"""The page of the operator's view: one file of HTML, with a script and a style of its own. It holds nothing that is secret:
whoever opens it gives a token, which the script keeps in memory, and asks the routes of `view`."""

from collections.abc import Sequence
from pathlib import Path

from keyhouse.http import Route, file_route, page_route

__all__ = ["page_routes"]

_ASSETS = Path(__file__).parent / "assets"


def page_routes() -> Sequence[Route]:
    return (
        page_route("/", (_ASSETS / "view.html").read_bytes(), "The operator's view."),
        file_route("/view.js", _ASSETS / "view.js"),
        file_route("/view.css", _ASSETS / "view.css"),
    )
