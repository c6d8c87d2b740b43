"""Links between records: what belongs together, and what must not be deleted while it is used.

    SESSION = Record(Session, "sess:{id}", BY_USER, belongs_to=(Owner(USER, by=BY_USER),))
    BOOK = Record(Book, "b:{id}", BY_AUTHOR, references=(Reference(AUTHOR, by=BY_AUTHOR),))

A link is declared at the record that depends on the other one. The key of that other record is
found in the leading fields of the dependent's own key, or of an index row that it has (`by`); so
the same rows lead back from the other record to everything that depends on it. A record that has no
such index row (its field is None) has no link.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import UNSET

from keyhouse.advice.arguments import checked
from keyhouse.errors import DeclarationError, KeyFieldError
from keyhouse.keys.key import Span
from keyhouse.keys.template import Template
from keyhouse.schema.compiled_rows import KeyValues, RowRule, RowSet, attribute
from keyhouse.schema.declaration import Declaration
from keyhouse.schema.index import BoundIndex, Index


class Link(Declaration):
    """Base of both kinds. `record` is the owner, or the record referred to.

    With several indexes in `by`, a record is found by any of them: an index of the listed ones and
    one of the others, say.
    """

    @checked(DeclarationError)
    def __init__(self, record: Any, *, by: Index | tuple[Index, ...] = ()) -> None:
        self.record = record
        self.by = (by,) if isinstance(by, Index) else by

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self.record, 'name', self.record)!r})"


class Owner(Link):
    """The record belongs to its owner: it cannot be put without it, and is deleted with it."""


class Reference(Link):
    """The record refers to another one, which must exist, and cannot be deleted meanwhile."""


class BoundLink:
    """A link between two records of one store, with their key fields bound."""

    __slots__ = ("_count", "_leads", "by", "child", "link", "owner", "owns")

    def __init__(self, link: Link, child: Any, owner: Any, by: tuple[BoundIndex, ...]) -> None:
        self.link = link
        self.owns = isinstance(link, Owner)
        self.child = child
        self.owner = owner
        self.by = by
        self._count = len(owner.template.fields)
        self._leads = [_lead(index, self._count) for index in by]

    def owner_keys(self, value: Any, values: KeyValues) -> list[str]:
        """Return the keys of the records that a dependent one is linked to."""
        join = self.owner.template.join
        try:
            return [join(owner) for owner in self._owners(value, values)]
        except KeyFieldError:
            return []  # another program wrote a field that no key can hold

    def _owners(self, value: Any, values: KeyValues) -> list[KeyValues]:
        if not self.by:
            return [values[: self._count]]
        owners: list[KeyValues] = []
        for lead in self._leads:
            owners += [owner for owner in lead(value, values) if owner not in owners]
        return owners

    def spans(self, values: KeyValues) -> Iterator[tuple[Any, Span]]:
        """Yield the declarations whose rows lead to a record's dependents, each with its span."""
        for declared in self.by or (self.child,):
            template: Template = declared.template
            yield declared, template.span(dict(zip(template.fields, values, strict=False)))

    def rules(self) -> list[RowRule] | None:
        """Return rules that derive the keys of the records linked to, each contributing this link.

        None if such a key also depends on other fields of an index row.
        """
        owner: Template = self.owner.template
        # A ULID is valid: it is in the record's key, or in an index row that was derived before.
        verbatim = tuple(segment.is_generated for segment in owner.segments)
        if not self.by:
            optional = (False,) * self._count
            return [RowRule(owner, tuple(range(self._count)), optional, verbatim, None, None, self)]
        if any(_depends_on_rest(index.rule, self._count) for index in self.by):
            return None
        return [
            rule._replace(
                template=owner,
                sources=rule.sources[: self._count],
                required=rule.required[: self._count],
                verbatim=verbatim,
                value=self,
            )
            for rule in (index.rule for index in self.by)
        ]


class RecordLinks:
    """All links of one record: `links` lead to other records, `dependents` from others to it.

    `are_fixed`: the links follow from the record's key, so no change of the record changes them.
    """

    __slots__ = ("_rows", "are_fixed", "dependents", "is_owner", "links")

    def __init__(self, links: Sequence[BoundLink], dependents: Sequence[BoundLink]) -> None:
        self.links = tuple(links)
        self.dependents = tuple(dependents)
        self.is_owner = any(link.owns for link in dependents)
        rules = [link.rules() for link in self.links]
        compiled = [rule for each in rules for rule in each or ()]
        whens = [rule.when for rule in compiled]
        compiled.sort(key=lambda rule: whens.index(rule.when))  # one test for all that share it
        self._rows = None if None in rules else RowSet(compiled)
        self.are_fixed = self._rows is not None and all(
            rule.when is None and all(isinstance(source, int) for source in rule.sources)
            for rule in compiled
        )

    def owner_keys(self, value: Any, values: KeyValues) -> dict[str, BoundLink]:
        """Return the keys of the records that this one is linked to, each with its link."""
        try:
            if self._rows is not None:
                return self._rows.rows(value, values)
        except KeyFieldError:
            pass  # another program wrote a field that no key can hold
        return {key: link for link in self.links for key in link.owner_keys(value, values)}


NO_LINKS = RecordLinks((), ())


def _lead(index: BoundIndex, count: int) -> Callable[[Any, KeyValues], Iterable[KeyValues]]:
    """Return a function of the leading fields of the rows that a record has in an index."""
    rule = index.rule
    if rule.each_at is not None or _depends_on_rest(rule, count):
        return lambda value, keys: _split_leads(index, count, value, keys)
    sources = [
        source if callable(source) or isinstance(source, int) else attribute(source)
        for source in rule.sources[:count]
    ]

    if count == 1:  # the common case, without a list
        return _lead_of_one(sources[0], rule.when)

    def lead(value: Any, values: KeyValues) -> Iterable[KeyValues]:
        if rule.when is not None and not rule.when(value):
            return ()
        owner = tuple(
            [values[source] if isinstance(source, int) else source(value) for source in sources]
        )
        return () if any(part is None or part is UNSET for part in owner) else (owner,)

    return lead


def _depends_on_rest(rule: RowRule, count: int) -> bool:
    """Return whether a row exists only with certain values of other fields than its leading
    ones."""
    return any(rule.required[count:]) or (rule.each_at is not None and rule.each_at >= count)


def _lead_of_one(
    source: int | Callable[[Any], object], when: Callable[[Any], bool] | None
) -> Callable[[Any, KeyValues], Iterable[KeyValues]]:
    def lead(value: Any, values: KeyValues) -> Iterable[KeyValues]:
        if when is not None and not when(value):
            return ()
        part = values[source] if isinstance(source, int) else source(value)
        return () if part is None or part is UNSET else ((part,),)

    return lead


def _split_leads(index: BoundIndex, count: int, value: Any, values: KeyValues) -> list[KeyValues]:
    try:
        rows = index.rows(value, values)
    except KeyFieldError:
        return []  # another program wrote a field that no key can hold
    return [(index.template.split(key) or ())[:count] for key in rows]


def check_links(records: Sequence[Any], bound: frozenset[str]) -> None:
    """Raise DeclarationError unless every link leads from one record of the schema to another.

    `bound` are the key fields that a store fixes.
    """
    linked = [(record, link) for record in records for link in record.links]
    for record, link in linked:
        if not any(link.record is each for each in records):
            raise _invalid("A link leads to a record of the same schema.", record, link)
        if link.record is record:
            raise _invalid("A record cannot be linked to its own kind.", record, link)
        for index in link.by:
            if not any(index is each for each in record.derived):
                raise _invalid("A link is found by an index of the same record.", record, link)
        if link.record.expiry is not None:
            raise _invalid(
                "A record that expires cannot be linked to: what depends on it would outlive it.",
                record,
                link,
            )
        if link.record.legacy is not None or (record.legacy is not None and not link.by):
            raise _invalid("A link cannot be found by a key that has a legacy key.", record, link)
        for declared in link.by or (record,):
            _check_fields(record, link, declared.template, bound)
    _check_kinds(linked)


def _check_fields(record: Any, link: Link, template: Template, bound: frozenset[str]) -> None:
    needed, given = (_free_segments(each, bound) for each in (link.record.template, template))
    if len(given) < len(needed) or any(
        type(one) is not type(other) or one.is_optional
        for one, other in zip(needed, given, strict=False)
    ):
        raise _invalid(
            "The key that a link is found by must begin with the key fields of the other record.",
            record,
            link,
            template=template.text,
            needed=link.record.template.text,
        )


def _free_segments(template: Template, bound: frozenset[str]) -> list[Any]:
    return [
        segment
        for name, segment in zip(template.fields, template.segments, strict=True)
        if name not in bound
    ]


def _check_kinds(linked: Iterable[tuple[Any, Link]]) -> None:
    """Reject records that are owned and referred to: a refusal would come half way through the
    deletion of their owner. Reject owners that belong to each other."""
    linked = list(linked)
    owned = {record for record, link in linked if isinstance(link, Owner)}
    for record, link in linked:
        if isinstance(link, Reference) and link.record in owned:
            raise _invalid(
                "A record that belongs to another is deleted with it, so nothing can refer to it.",
                record,
                link,
            )
        if isinstance(link, Owner) and _reaches(link.record, record, linked):
            raise _invalid("Two records belong to each other.", record, link)


def _reaches(start: Any, goal: Any, linked: list[tuple[Any, Link]]) -> bool:
    """Return whether `start` belongs to `goal`, directly or through others."""
    pending, seen = [start], set()
    while pending:
        at = pending.pop()
        if at is goal:
            return True
        if at not in seen:
            seen.add(at)
            pending += [
                link.record for record, link in linked if record is at and isinstance(link, Owner)
            ]
    return False


def _invalid(sentence: str, record: Any, link: Link, **fields: object) -> DeclarationError:
    return DeclarationError(sentence, record=record.name, link=repr(link), **fields)
