"""Keys that hold private members, and who may see them.

Private and sealed members of a record can be part of the keys and values of its derived rows: an
index by `pin` has a key for each one. So an operator below `studio:admin` sees such a key with its
private fields masked, and cannot ask for it: whether a key, a prefix or a filter with a guessed
value finds something would tell the value.

A field is private if its source is a private or sealed member, or a function of the whole record,
which may read one.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from keyhouse.auth import Caller
from keyhouse.errors import ScopeError
from keyhouse.schema import Derived, KeyMatch, Record, Schema
from keyhouse.schema.compiled_rows import Source
from keyhouse.schema.private_fields import is_private
from keyhouse.store import Store
from keyhouse.studio.rendering import MASK, hidden_members, masked
from keyhouse.studio.settings import ADMIN

_MASKED_VALUE: Final = f'"{MASK}"'.encode()


@lru_cache(maxsize=4_096)
def private_fields(record: Record[Any], declared: Record[Any] | Derived) -> frozenset[str]:
    """Return the fields of a key that may hold private members of its record."""
    hidden = (*record.private, *record.sealed)
    if not hidden:
        return frozenset()
    return frozenset(
        name
        for name in declared.template.fields
        if is_private(_source(record, declared, name), hidden)
    )


def fields_of(match: KeyMatch) -> frozenset[str]:
    """Return the fields of a key that may hold private members of its record."""
    return private_fields(match.record.declared, match.declared.declared)


def _source(record: Record[Any], declared: Record[Any] | Derived, name: str) -> Source:
    """Return the attribute, or the function of the record, that a field of a key comes from."""
    if isinstance(declared, Derived):
        source = declared.each.get(name) or declared.fields.get(name)
        if source is not None:
            return source
    return record.fields.get(name, name)


def has_private_value(match: KeyMatch) -> bool:
    """Return whether the value of a derived row may hold private members of its record."""
    record, declared = match.record.declared, match.declared.declared
    hidden = (*record.private, *record.sealed)
    if not hidden or isinstance(declared, Record):
        return False
    sources, carried = [*declared.value_sources().values()], declared.carried()
    if carried is not None:
        sources.append(_source(record, record, carried))
    return any(is_private(source, hidden) for source in sources)


def masked_value(match: KeyMatch | None, value: bytes) -> bytes:
    """Return the value of any row with private members hidden."""
    if match is None:
        return value
    if match.is_record:
        return masked(value, hidden_members(match.record.declared))
    return _MASKED_VALUE if has_private_value(match) else value


def masked_key(match: KeyMatch | None, key: str) -> str:
    """Return a key with its private fields hidden."""
    if match is None:
        return key
    template, private = (
        match.declared.template,
        fields_of(match),
    )
    if not private:
        return key
    parts = [template.literals[0]]
    for name, segment, value, literal in zip(
        template.fields, template.segments, match.values, template.literals[1:], strict=True
    ):
        parts += (MASK if name in private else segment.format(value), literal)
    return "".join(parts)


def visible_end(match: KeyMatch | None, key: str) -> int:
    """Return where the first private field of a key starts; its length if it has none."""
    return len(key) if match is None else len(masked_key(match, key).partition(MASK)[0])


class KeyView:
    """The keys of a space as an operator may see them; without one, as everybody may, in the
    journal and in the log of a job."""

    def __init__(self, stores: Iterable[Store], caller: Caller | None = None) -> None:
        self._schemas = [store.schema for store in stores]
        self.sees_private = caller is not None and ADMIN in caller.scopes

    def key(self, key: str) -> str:
        """Return a key as it is shown."""
        return key if self.sees_private else masked_key(self.find(key), key)

    def value(self, key: str, value: bytes) -> bytes:
        """Return the value of a row as it is shown; that of a record is always masked."""
        match = self.find(key)
        if self.sees_private and not (match and match.is_record):
            return value
        return masked_value(match, value)

    def find(self, key: str) -> KeyMatch | None:
        for schema in self._schemas:
            if (match := schema.find(key)) is not None:
                return match
        return None

    def check(self, *texts: str) -> None:
        """Raise ScopeError if a key, or a prefix of keys, reaches into a private field, also if no
        row has it: a guess would find that out."""
        if self.sees_private:
            return
        for text in texts:
            match = self.find(text)
            if match is not None and not fields_of(match):
                continue
            if any(each.match(text) for schema in self._schemas for each in _reaching(schema)):
                raise private_error()

    def check_record(self, record: Record[Any]) -> None:
        """Raise ScopeError if the keys of a record hold its private members."""
        if not self.sees_private and private_fields(record, record):
            raise private_error()


def private_error() -> ScopeError:
    return ScopeError(f"The key holds private members: this needs the scope {ADMIN}.")


def has_hidden(schema: Schema) -> bool:
    """Return whether a record of the schema has private or sealed members."""
    return any(record.private or record.sealed for record in schema.records)


@lru_cache(maxsize=256)
def _reaching(schema: Schema) -> list[re.Pattern[str]]:
    """Return patterns of the texts that reach into a private field, one for each template."""
    patterns: list[re.Pattern[str]] = []
    for record, each in schema.declared():
        if not (private := private_fields(record.declared, each.declared)):
            continue
        template = each.template
        text = re.escape(template.literals[0])
        for name, segment, literal in zip(
            template.fields, template.segments, template.literals[1:], strict=True
        ):
            if name in private:
                break
            text += f"(?:{segment.pattern}){re.escape(literal)}"
        patterns.append(re.compile(f"{text}.", re.DOTALL))
    return patterns
