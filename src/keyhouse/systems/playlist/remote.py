"""The buckets through the service: `keyhouse list playlist --service http://host:8080 --token …`.

The token is that of an admin's session. Rows are read only: programs that change them use NATS, as
`kryten-py` does.
"""

from keyhouse.errors import UsageError
from keyhouse.service.http_client import HttpClient, service_url
from keyhouse.service.row_remote import RowsRemote

__all__ = ["connect"]


async def connect(url: str, space: str, token: str | None) -> RowsRemote:
    """Return the remote of one bucket. Sends nothing yet."""
    if token is None:
        raise UsageError(
            "The service requires a token: --token, or KEYHOUSE_TOKEN, with the session of an"
            " admin: `keyhouse playlist sign-in`."
        )
    client = HttpClient(service_url(url, "/playlist"), token=token)
    return RowsRemote(client, events="/playlist/api/v1/events", query={"bucket": space})
