"""Who asks, and how much they may: tokens, scopes, rate limits and quotas. The same for every face and every system.

It knows no route and no record.
"""

from keyhouse.serve.auth.caller import Authenticator, Caller, HeaderPairs

__all__ = ["Authenticator", "Caller", "HeaderPairs"]
