"""Pages of a service: routes with a login and errors as pages, and values as text.

It knows no system: a service gives its templates, and the values that its frame shows.
"""

from keyhouse.service.pages.pages import PagePaths, PageReply, Pages, Show, page_parts

__all__ = ["PagePaths", "PageReply", "Pages", "Show", "page_parts"]
