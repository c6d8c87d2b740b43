"""The HTTP face: a typed route table on Starlette, with msgspec bodies, problem documents and an OpenAPI document.

It knows no system and no store: a route's handler is all it calls.
"""

from keyhouse.serve.http.route import Route

__all__ = ["Route"]
