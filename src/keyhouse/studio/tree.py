"""The key tree: the children of a prefix, exact, at a cost by children and not by rows.

Theory of operation. A node is a prefix of keys that ends where a literal part of a template has a
delimiter: `book:` and `by-author:`, then `by-author:lem:`, then the rows. Children are found by a
skip scan: read a few keys from the start of the span; each gives the child that it is in, by its
template; once a child is known to hold further keys, continue behind its last possible key. So a
child with a million rows costs one more read. Every stored key is below exactly the children of its
own text: nothing is sampled, and rows of no template are shown too.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import zip_longest
from typing import Final

import msgspec

from keyhouse.auth import Caller
from keyhouse.engine import Span
from keyhouse.keys import Template
from keyhouse.schema import KeyMatch
from keyhouse.store import Store
from keyhouse.studio.catalog import SystemCatalog
from keyhouse.studio.private_keys import KeyView, visible_end
from keyhouse.studio.rendering import MASK

CHILDREN_PAGE: Final = 200
_READ_KEYS: Final = 64
_DELIMITERS = re.compile(r"[:/|]+")
_OTHER_DELIMITERS = re.compile(r"[^A-Za-z0-9]+")
"""Delimiters of a literal without the usual ones: `cust_{customer}_`."""


class TreeNode(msgspec.Struct):
    """A child: a row with this key, or a prefix of further keys. `kind` and `record` are those of
    its `first` key, `templates` those of all keys that may be below it. `is_private`: its keys
    continue with private members, which this operator does not see."""

    text: str
    label: str
    is_row: bool
    first: str = ""
    kind: str = ""
    record: str = ""
    templates: list[str] = []
    is_private: bool = False


class TreePage(msgspec.Struct, kw_only=True):
    system: str
    engine: str
    space: str
    at: str
    parents: list[TreeNode]
    nodes: list[TreeNode]
    next: str
    has_records: bool


class TreeQuery(msgspec.Struct, forbid_unknown_fields=True):
    at: str = ""
    after: str = ""


class Tree:
    def __init__(self, catalog: SystemCatalog) -> None:
        self._catalog = catalog

    async def page(self, system: str, space: str, query: TreeQuery, caller: Caller) -> TreePage:
        """List the children of a prefix."""
        served = self._catalog.system(system)
        stores = await self._catalog.stored(served, space)
        view = KeyView(stores, caller)
        view.check(query.at, query.after)
        nodes, following = await children(stores, query.at, query.after, view=view)
        return TreePage(
            system=system,
            engine=served.engine,
            space=space,
            at=query.at,
            parents=_parents(stores, query.at, nodes),
            nodes=nodes,
            next=following,
            has_records=any(_is_record(stores, each.first) for each in nodes),
        )


async def children(
    stores: list[Store],
    at: str,
    after: str = "",
    limit: int = CHILDREN_PAGE,
    *,
    view: KeyView,
) -> tuple[list[TreeNode], str]:
    """Return children of a prefix after a text, and the text to continue after; "" at the end."""
    span = Span.prefix(at)
    nodes: list[TreeNode] = []
    read = _READ_KEYS
    if after:
        span = _past(span, after, is_row=_is_row(stores, after))
    while True:
        page = await stores[0].row_page(span, limit=read, keys_only=True)
        keys = [row.key for row in page.rows]
        known = len(nodes)
        position = 0
        while position < len(keys):
            node = _child(stores, at, keys[position], view)
            if len(nodes) == limit:
                return nodes, nodes[-1].text
            nodes.append(node)
            position += 1
            if not node.is_row:
                while position < len(keys) and keys[position].startswith(node.text):
                    position += 1
        if not page.more or not nodes:
            return nodes, ""
        # of a large child one key is enough; rows come many at once
        read = 1 if len(nodes) - known == 1 and not nodes[-1].is_row else _READ_KEYS
        last = nodes[-1]
        if last.is_private and last.text == at:
            return nodes, ""
        span = _past(span, last.text, is_row=last.is_row)
        if span.stop is not None and span.start >= span.stop:
            return nodes, ""


def _past(span: Span, text: str, *, is_row: bool) -> Span:
    """Return the part of the span behind a row, or behind all keys with this prefix."""
    if is_row:
        return span.after(text)
    stop = Span.prefix(text).stop
    return Span(text, text) if stop is None else Span(stop, span.stop)


def _is_row(stores: list[Store], text: str) -> bool:
    """Return whether the text of a child is the key of a row, and not a prefix."""
    if find(stores, text) is not None:
        return True
    return not (_DELIMITERS.search(text[-1:]) or _templates(stores, text))


def _child(stores: list[Store], at: str, key: str, view: KeyView) -> TreeNode:
    match = find(stores, key)
    end = next((each for each in _ends(match, key) if each > len(at)), len(key))
    visible = len(key) if view.sees_private else visible_end(match, key)
    text = key[: min(end, visible)]
    node = TreeNode(text, text[len(at) :] or text, end == len(key), view.key(key))
    if end > visible:
        node.label, node.is_row, node.is_private = f"{text[len(at) :]}{MASK}", False, True
    if match is not None:
        node.kind = match.declared.declared.kind
        node.record = match.record.name
        node.templates = [match.declared.template.text]
    if not node.is_row:
        node.templates = _templates(stores, text) or node.templates
    return node


def _templates(stores: list[Store], prefix: str) -> list[str]:
    """Return the templates whose keys may start with the prefix of a node."""
    templates = {
        template.text: None
        for store in stores
        for _, declared in store.schema.declared()
        if (head := (template := declared.template).head).startswith(prefix)
        or (prefix.startswith(head) and _starts(template).fullmatch(prefix))
    }
    return list(templates)


@lru_cache(maxsize=4_096)
def _starts(template: Template) -> re.Pattern[str]:
    """Return a pattern of the starts of a template's keys that end in its literal text."""
    starts: list[str] = []
    before = ""
    for literal, segment in zip_longest(template.literals, template.segments):
        starts += [before + re.escape(literal[: end + 1]) for end in range(len(literal))]
        if segment is not None:
            before += f"{re.escape(literal)}(?:{segment.pattern})"
    return re.compile("|".join(starts), re.DOTALL)


def _is_record(stores: list[Store], key: str) -> bool:
    match = find(stores, key)
    return match is not None and match.is_record


def find(stores: Iterable[Store], key: str) -> KeyMatch | None:
    """Return the declaration of a key in any schema of the space."""
    for store in stores:
        if (match := store.schema.find(key)) is not None:
            return match
    return None


def _ends(match: KeyMatch | None, key: str) -> list[int]:
    """Return the positions in the key behind each delimiter that is not part of a field."""
    if match is None:
        return [each.end() for each in _DELIMITERS.finditer(key)]
    template = match.declared.template
    ends: list[int] = []
    position = 0
    texts = [
        segment.format(value)
        for segment, value in zip(template.segments, match.values, strict=True)
    ]
    for literal, text in zip(template.literals, [*texts, ""], strict=True):
        delimiters = _DELIMITERS if _DELIMITERS.search(literal) else _OTHER_DELIMITERS
        ends += [position + each.end() for each in delimiters.finditer(literal)]
        position += len(literal) + len(text)
    return ends if position == len(key) else [len(key)]


def _parents(stores: list[Store], at: str, nodes: list[TreeNode]) -> list[TreeNode]:
    """Return the prefixes that lead to this one."""
    if not at:
        return []
    key = nodes[0].first if nodes else at
    ends = [each for each in _ends(find(stores, key), key) if each < len(at)]
    starts = [0, *ends]
    return [
        TreeNode(at[:end], at[start:end], False) for start, end in zip(starts, ends, strict=False)
    ]
