"""Records what clients of `keyhouse serve` see, and compares two recordings.

The server is a separate process, which may run the sources of another version; requests go over
the network alone. Times, ids, tokens and ports in replies are replaced by names.
"""
