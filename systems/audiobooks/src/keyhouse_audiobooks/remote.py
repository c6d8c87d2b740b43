"""A library through its service: `keyhouse list audiobooks --store http://host:8080 --token …`.

The token is that of an admin's login, or an admin's API key. Rows are read only: the service keeps
what belongs together, so changes go through its API.
"""

from keyhouse.service.row_remote import rows_remote

__all__ = ["connect"]

connect = rows_remote("/audiobooks", space="library", token="an API key of an admin", member="data")
