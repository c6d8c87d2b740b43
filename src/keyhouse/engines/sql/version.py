"""Which versions of the tables this code knows, without asking Alembic: a test holds the two together."""

from typing import Final

VERSIONS: Final = ("0001",)
"""In order; the last is what the engines work with. They are what the table `version` of a layout holds."""

HEAD: Final = VERSIONS[-1]
