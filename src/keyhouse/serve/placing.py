"""Where each system's rows are: `keyhouse.engines.placing`, which the command line reads too, without what a face needs."""

from keyhouse.engines.placing import file_of, url_of

__all__ = ["file_of", "url_of"]
