"""The Studio: the keyspaces of all served systems in a browser, at `/studio/`.

It knows systems only by the schemas and engines of their specs, and writes only through a Store.
Each page has a `.json` twin that returns the same values.
"""

from keyhouse.studio.catalog import StudioSystem, SystemCatalog
from keyhouse.studio.service import Studio
from keyhouse.studio.settings import SCOPES, StudioSettings

__all__ = ["SCOPES", "Studio", "StudioSettings", "StudioSystem", "SystemCatalog"]
