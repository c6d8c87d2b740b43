"""The verbs of a store as data: one table, from which a service makes its HTTP routes, NATS
subjects and batches, and a remote store its requests.

`table.VERBS` is the table. A verb is one entry there, and one function in `reads` or `writes` that
takes a space and plain arguments. Nothing here knows HTTP, NATS or a service.
"""
