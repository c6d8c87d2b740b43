"""Who asks, and how much they may: tokens, scopes, rate limits and quotas. The same for every face and every system.

It knows no route and no record.
"""
