"""The pages at `/playlist/`, for the members of the channel.

Each works as plain HTML: links, and forms that lead to a page. With scripts, htmx replaces parts of
a page in place, and events of the channel appear at once.
"""
