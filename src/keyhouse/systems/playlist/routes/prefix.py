"""The path of the API below the service: pages are beside it."""

from typing import Final

API: Final = "/api/v1"
