"""A library through its service: `keyhouse list audiobooks --service http://host:8080 --token …`.

The token is that of an admin's login, or an admin's API key. Rows are read only: the service keeps
what belongs together, so changes go through its API.
"""

from keyhouse.errors import UsageError
from keyhouse.service.http_client import HttpClient, service_url
from keyhouse.service.row_remote import RowsRemote

__all__ = ["connect"]


async def connect(url: str, space: str, token: str | None) -> RowsRemote:
    """Return the remote of a library, which is that of the token. Sends nothing yet."""
    if token is None:
        raise UsageError(
            "The library requires a token: --token, or KEYHOUSE_TOKEN, with an API key of an admin."
        )
    client = HttpClient(service_url(url, "/audiobooks"), token=token)
    return RowsRemote(
        client, events="/audiobooks/api/v1/events", query={"library": space}, member="data"
    )
