"""NATS: the one client, its server, and the listener that answers requests.

`client`, `credentials`, `errors` and `server` are for every layer, and import no schema;
`endpoint`, `connection` and `listener` serve requests. Import from the modules: this one stays
empty, so that an engine loads no more than it needs.
"""
