"""The HTTP routes, in the order of the document. A handler reads the request, calls an operation,
and shapes the response."""
