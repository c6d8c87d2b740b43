"""The buckets through the service: `keyhouse list playlist --store http://host:8080 --token …`.

The token is that of an admin's session. Rows are read only: programs that change them use NATS, as
`kryten-py` does.
"""

from keyhouse.service.row_remote import rows_remote

__all__ = ["connect"]

connect = rows_remote(
    "/playlist", space="bucket", token="the session of an admin: `keyhouse playlist sign-in`"
)
