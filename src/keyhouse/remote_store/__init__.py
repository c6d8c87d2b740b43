"""A store that a service keeps: `RemoteStore` has the verbs, results and errors of `Store`.

It knows the requests of a served schema (`keyhouse serve module:SCHEMA`), and nothing of the
service's code. Drivers are imported when a connection is opened.
"""

from keyhouse.remote_store.store import RemoteStore
from keyhouse.remote_store.transaction import RemoteTransaction

__all__ = ["RemoteStore", "RemoteTransaction"]
