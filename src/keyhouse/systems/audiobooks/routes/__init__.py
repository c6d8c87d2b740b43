"""The HTTP routes of the library, in the order of the document: one module for each part. A handler
reads the request, calls an operation and shapes the reply."""
