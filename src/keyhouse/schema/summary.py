"""Summaries: rows that list the records that share them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError, DocumentError, NewerError, UnreadableError
from keyhouse.keys.segment import Segment
from keyhouse.keys.template import Template
from keyhouse.schema import document
from keyhouse.schema.compiled_rows import KeyValues, Source
from keyhouse.schema.derived import BoundDerived, Derived, RowPlace

TRUNCATED: Final = "truncated"
"""The member of a row that says that it may lack members."""


class Summary(Derived):
    """A row that lists records: `{"assetIds": ["1981", …]}`. It is deleted with its last member.

    - `member`: the field of the record's key that is listed.
    - `under`: the member of the JSON object that holds the list. Others that this code does not
      know are kept.
    - `entry`: makes a map of the list, from the member to what `entry` returns for the record. A
      map that another program stored as a plain list gets its entries with the next write.
    - `version`: the member with the version of the row, and the version that this code writes. A
      write that would change a row of a newer version raises NewerError.
    - `rebuilt`: a map that is missing, or is not a map, is made from all records of its key:
      nobody has to repair it first.
    - `newer_entry`: returns the entry of a record that newer code wrote, from its JSON object;
      without it, a map that is rebuilt leaves such records out.
    - `members_max`: the most members of a plain list, and so of what a write changes. A full row
      lists no further ones, and has `"truncated": true`, until `verify` finds room and completes
      it; `verify` accepts that the others are absent.
    """

    kind = "summary"

    @checked(DeclarationError)
    def __init__(
        self,
        at: str | Template,
        *,
        member: str,
        under: str,
        entry: Callable[[Any], object] | None = None,
        version: tuple[str, int] | None = None,
        rebuilt: bool = False,
        newer_entry: Callable[[dict[str, Any]], object] | None = None,
        members_max: int | None = None,
        fields: Mapping[str, Source] | None = None,
        each: Mapping[str, Source] | None = None,
        when: Callable[[Any], bool] | None = None,
        name: str | None = None,
        shown: bool = False,
    ) -> None:
        super().__init__(at, fields=fields, each=each, when=when, name=name, shown=shown)
        self.member_field = member
        self.under = under
        self.entry = entry
        self.version = version
        self.rebuilt = rebuilt
        self.newer_entry = newer_entry
        self.members_max = members_max
        if members_max is not None and (entry is not None or members_max < 1):
            raise DeclarationError(
                "Only a plain list has a maximum of members, from 1.", template=self.template.text
            )
        if rebuilt and entry is None:
            raise DeclarationError(
                "Only a summary with entries is rebuilt.", template=self.template.text
            )
        if newer_entry is not None and not rebuilt:
            raise DeclarationError(
                "Only a summary that is rebuilt has entries of newer records.",
                template=self.template.text,
            )
        if version is not None and version[0] == under:
            raise DeclarationError(
                "The version of a summary has the name of the list.",
                name=under,
                template=self.template.text,
            )

    def bind(self, place: RowPlace) -> "BoundSummary":
        return BoundSummary(self, place)

    def value_text(self) -> str:
        member = self.member_field
        listed = f"[{member}, …]" if self.entry is None else f"{{{member}: entry, …}}"
        version = "" if self.version is None else f", {_json(self.version[0])}: {self.version[1]}"
        return f"`{{{_json(self.under)}: {listed}{version}}}`"

    def carried(self) -> str | None:
        return self.member_field

    def value_sources(self) -> Mapping[str, Source]:
        return {} if self.entry is None else {self.under: self.entry}


class BoundSummary(BoundDerived):
    """See Summary."""

    declared: Summary
    strategy = "merge"
    has_siblings = True
    is_claimed = False

    def __init__(self, declared: Summary, place: RowPlace) -> None:
        self.under, self.entry, self.rebuilt = declared.under, declared.entry, declared.rebuilt
        self.members_max, self.version = declared.members_max, declared.version
        self.has_entries = declared.entry is not None
        self._version_member = {} if self.version is None else dict([self.version])
        member, key, template = declared.member_field, place.key, place.template
        if member not in key.fields or not _is_text(key.segment(member)):
            raise DeclarationError(
                "A summary lists a field of its record's key that is text.", field=member
            )
        self._member_at = key.fields.index(member)
        if declared.newer_entry is not None and not set(template.fields) <= set(key.fields):
            raise DeclarationError(
                "A newer record is listed by the fields of its key alone.",
                template=template.text,
                record=place.record,
            )
        super().__init__(declared, place)
        if self.has_entries and any(isinstance(origin, tuple) for origin in self._owner):
            raise DeclarationError(
                "Two records could have an entry under the same member:"
                " put a field that distinguishes them into the row's key.",
                template=template.text,
                record=place.record,
            )

    def contribution(self, record: Any, values: KeyValues) -> tuple[str, object]:
        entry = None if self.entry is None else document.parse(document.encode(self.entry(record)))
        return str(values[self._member_at]), entry

    def newer_contribution(self, value: bytes, values: KeyValues) -> tuple[str, object] | None:
        """Return the member and entry of a record that newer code wrote; None if it is not
        listed."""
        newer_entry = self.declared.newer_entry
        plain = None if newer_entry is None else document.parse(value)
        if newer_entry is None or not isinstance(plain, dict):
            return None
        return str(values[self._member_at]), newer_entry(plain)

    def contributes_key(self) -> bool:
        return self.entry is None

    def members(self, row: bytes | None) -> dict[str, object]:
        """Return the members that the row lists. A map stored as a plain list is read as well: then
        the members have no entries."""
        return {} if row is None else self._parsed(row)[0]

    def is_truncated(self, row: bytes | None) -> bool:
        """Return whether the row may lack members, because it was full."""
        return (
            row is not None
            and self.members_max is not None
            and self._parsed(row)[1].get(TRUNCATED) is True
        )

    def has_room(self, row: bytes, count: int = 0) -> bool:
        """Return whether a truncated row has fewer members than it may have, and so would a row of
        `count` members. A row of a newer version has none: it is only read."""
        if not self.is_truncated(row) or self.members_max is None:
            return False
        members, others, _ = self._parsed(row)
        return not self._is_newer(others) and max(count, len(members)) < self.members_max

    def without_mark(self, key: str, row: bytes) -> bytes | None:
        """Return the value of a truncated row that lacks no member; None: no row."""
        members, others, _ = self._parsed(row)
        self._reject_newer(key, others)
        del others[TRUNCATED]
        return document.encode_checked({self.under: list(members), **others}) if members else None

    def needs_rebuild(self, row: bytes | None) -> bool:
        """Return whether the entries must be made from the records: a map is stored as a plain
        list, or it is `rebuilt` and is missing or something else."""
        return self.rebuilt if row is None else not self._parsed(row)[2]

    def rebuild(self, key: str, row: bytes | None, entries: dict[str, object]) -> bytes:
        """Return the row with these members and entries instead of the stored ones."""
        others = {} if row is None else self._parsed(row)[1]
        self._reject_newer(key, others)
        return self._encoded(entries, others)

    def merge(
        self,
        key: str,
        row: bytes | None,
        removed: tuple[str, object] | None,
        added: tuple[str, object] | None,
    ) -> bytes | None:
        members, others, _ = ({}, {}, True) if row is None else self._parsed(row)
        self._reject_newer(key, others)
        if removed is not None and added is None:
            members.pop(removed[0], None)
        if added is not None:
            if added[0] in members or not self._is_full(members):
                members[added[0]] = added[1]
            else:
                others[TRUNCATED] = True
        if not members and not others.get(TRUNCATED):
            return None
        return self._encoded(members, others)

    def _encoded(self, members: dict[str, object], others: dict[str, object]) -> bytes:
        listed: object = members if self.entry is not None else list(members)
        version = self._version_member
        return document.encode_checked({self.under: listed, **version, **others, **version})

    def _is_full(self, members: dict[str, object]) -> bool:
        return self.members_max is not None and len(members) >= self.members_max

    def _parsed(self, row: bytes) -> tuple[dict[str, object], dict[str, object], bool]:
        """Return the members, the other members of the row's object, and whether it is a map."""
        others: dict[str, object] = {}
        try:
            value = document.parse(row)
            if isinstance(value, dict):
                others = {name: part for name, part in value.items() if name != self.under}
            listed = value[self.under] if isinstance(value, dict) else value
            if isinstance(listed, dict):
                return dict(listed), others, True
            return dict.fromkeys(listed), others, False
        except (KeyError, TypeError, DocumentError) as error:
            self._reject_newer("", others)
            if self.rebuilt:
                return {}, others, False
            raise UnreadableError(
                "The summary row is not a list of members.", index=self.template.text
            ) from error

    def _is_newer(self, others: dict[str, object]) -> bool:
        number = None if self.version is None else others.get(self.version[0])
        return self.version is not None and isinstance(number, int) and number > self.version[1]

    def _reject_newer(self, key: str, others: dict[str, object]) -> None:
        if self.version is not None and self._is_newer(others):
            raise NewerError(
                "The row that lists the records was written by newer code, and is only read:"
                " use the newer program to write.",
                key=key,
                found=others[self.version[0]],
                known=self.version[1],
            )

    def holds(self, row: bytes | None, contribution: Any) -> bool:
        members = self.members(row)
        if contribution[0] not in members:
            return self.is_truncated(row)
        return bool(members[contribution[0]] == contribution[1])

    def stored_contribution(self, row: bytes, values: KeyValues) -> tuple[str, object]:
        member = str(values[self._member_at])
        return member, self.members(row).get(member)

    def owners(self, key: str, row: bytes) -> list[list[KeyValues]]:
        values = self.template.split(key)
        return (
            []
            if values is None
            else [self._candidates(values, member) for member in self.members(row)]
        )


def _is_text(segment: Segment) -> bool:
    """Return whether values of a key field are text, so that names of JSON members hold them."""
    return not segment.is_optional and segment.innermost.takes[:1] in ((), (str,))


def _json(text: str) -> str:
    return document.encode_checked(text).decode()
