"""Derived rows, compiled: one generated function returns all rows that a record has by any number
of rules.

Every put derives its rows twice, for the record before and after, so this is the hottest code of a
schema. A loop over rules and fields costs several times as much as the straight-line code that
`compile_rows` writes from them:

    def rows(v, keys):
        rows = {}
        if w0(v):                                   # `when`; rules with the same one share the test
            x0_0 = v.series_id
            if x0_0 is not None:                    # a field that is None makes the index sparse
                rows[<key of x0_0 and keys[0]>] = b"1"
            for x1_0 in v.tags or ():               # `each`
                if x1_0 is not None:
                    rows[<key of x1_0 and keys[0]>] = b"1"
        return rows

The generated function raises a bare ValueError or TypeError where a field can't be written.
`RowRule.field_values` is the readable definition of the same, which `RowSet` then uses: it raises
an error that names the field.

Most changes of a record leave most of its rows as they are. So `ChangedRows` compares what the
rules read from the record, without writing any key:

    def changed(b, a):
        found = []
        if (b.series_id != a.series_id …):
            found.append(index)
        return found
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from keyword import iskeyword
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from keyhouse.errors import KeyFieldError
from keyhouse.keys.compiler import define, key_expression
from keyhouse.keys.segment import Segment
from keyhouse.keys.template import Template

KeyValues = tuple[object, ...]
"""The values of a record's key, in the order of its template's fields."""

Source = str | Callable[[Any], object]
"""The origin of a field: an attribute's path, or a function of the record."""

FieldSource = int | Source
"""The origin of a field of a derived key: also a position in the record's key."""

CompiledRows = Callable[[Any, KeyValues], dict[str, Any]]


class FromAttribute:
    """A function of one attribute as the source of a field: `FromAttribute("tags", sorted)`.

    It is not called where a change of the record leaves that attribute equal, so it returns the
    same for values that are equal: for 1, 1.0 and True, too.
    """

    __slots__ = ("attribute", "make")

    def __init__(self, attribute: str, make: Callable[[Any], object]) -> None:
        self.attribute = attribute
        self.make = make

    def __call__(self, record: Any) -> object:
        return self.make(getattr(record, self.attribute))


class RowRule(NamedTuple):
    """The rule by which one kind of row is derived.

    `sources` belong to the fields of `template`, and so do `required` (the value may be None, and
    then there is no row) and `verbatim` (the value is known to be valid text, since the record's
    key holds it). `each_at` is the field that takes every value of its source in turn. `value` is
    what each record contributes, or a function of the record and its key that returns it; of its
    key alone, if `is_value_of_key`. `private` are fields whose values no error has.
    """

    template: Template
    sources: tuple[FieldSource, ...]
    required: tuple[bool, ...]
    verbatim: tuple[bool, ...]
    each_at: int | None
    when: Callable[[Any], bool] | None
    value: object
    is_value_of_key: bool = False
    private: tuple[str, ...] = ()

    def contribution(self, record: Any, values: KeyValues) -> Any:
        return self.value(record, values) if callable(self.value) else self.value

    def field_values(self, record: Any, values: KeyValues) -> Iterator[list[object]]:
        """Return the field values of each row that the record has."""
        if self.when is not None and not self.when(record):
            return
        fields = [_read(source, record, values) for source in self.sources]
        many: Any = [None] if self.each_at is None else fields[self.each_at]
        for one in many or ():
            if self.each_at is not None:
                fields[self.each_at] = one
            if not any(
                value is None and needed
                for value, needed in zip(fields, self.required, strict=True)
            ):
                yield fields


def attribute(path: str) -> Callable[[Any], Any]:
    """Return a reader of an attribute, or with dots of a nested one. A None on the way makes the
    result None."""
    if "." not in path:
        return attrgetter(path)
    names = path.split(".")

    def read(value: Any) -> Any:
        for name in names:
            if value is None:
                return None
            value = getattr(value, name)
        return value

    return read


def compile_rows(rules: Sequence[RowRule]) -> CompiledRows:
    """Return a function of a record and its key values: the keys of all its rows, each with the
    contribution."""
    scope: dict[str, Any] = {}
    lines = ["def rows(v, keys):", " rows = {}"]
    texts = _KeyTexts(rules, scope, lines)
    when: Callable[[Any], bool] | None = None
    for number, rule in enumerate(rules):
        if rule.when is not None and rule.when is not when:
            scope[f"w{number}"] = rule.when
            lines.append(f" if w{number}(v):")
        when = rule.when
        indent = " " if when is None else "  "
        lines += [indent + line for line in _rule_lines(rule, number, texts, scope)]
    lines.append(" return rows")
    compiled: CompiledRows = define("\n".join(lines), "rows", scope)
    return compiled


class _KeyTexts:
    """Fields of the record's key that several rules write alike: each is written once, before all
    rules."""

    def __init__(self, rules: Sequence[RowRule], scope: dict[str, Any], lines: list[str]) -> None:
        self._names: list[tuple[int, Segment, str]] = []
        written = [
            (source, rule.template.segments[at])
            for rule in rules
            for at, source in enumerate(rule.sources)
            if isinstance(source, int) and not (rule.verbatim[at] or rule.required[at])
        ]
        for source, segment in written:
            alike = [other for at, other in written if at == source and _alike(segment, other)]
            if len(alike) > 1 and self.name(source, segment) is None:
                name = f"t{len(self._names)}"
                scope[f"f{name}"] = segment.format
                lines.append(f" {name} = f{name}(keys[{source}])")
                self._names.append((source, segment, name))

    def name(self, source: FieldSource, segment: Segment) -> str | None:
        """Return the variable that holds a field's text; None where the rule writes it itself."""
        for at, other, name in self._names:
            if at == source and _alike(segment, other):
                return name
        return None


def _alike(one: Segment, other: Segment) -> bool:
    return type(one) is type(other) and vars(one) == vars(other)


def _rule_lines(
    rule: RowRule, number: int, texts: _KeyTexts, scope: dict[str, Any]
) -> Iterator[str]:
    names, tests, verbatim = [], [], []
    indent, loop = "", ""
    for at, (field, source) in enumerate(zip(rule.template.fields, rule.sources, strict=True)):
        text = texts.name(source, rule.template.segments[at])
        name = f"x{number}_{at}"
        expression = _expression(source, f"s{number}_{at}", scope)
        if at == rule.each_at:
            loop = f"for {name} in {expression} or ():"
        elif isinstance(source, int):
            name = text or expression
        else:
            yield f"{name} = {expression}"
        names.append(name)
        if rule.required[at]:
            tests.append(f"{name} is not None")
        if rule.verbatim[at] or text is not None:
            verbatim.append(field)
    if loop:
        yield loop
        indent += " "
    if tests:
        yield f"{indent}if {' and '.join(tests)}:"
        indent += " "
    key, key_scope = key_expression(rule.template, names, trusted=verbatim, mark=f"{number}_")
    scope |= key_scope | {f"v{number}": rule.value}
    value = f"v{number}(v, keys)" if callable(rule.value) else f"v{number}"
    yield f"{indent}rows[{key}] = {value}"


def _expression(source: FieldSource, name: str, scope: dict[str, Any]) -> str:
    if isinstance(source, int):
        return f"keys[{source}]"
    if isinstance(source, str) and source.isidentifier() and not iskeyword(source):
        return f"v.{source}"
    scope[name] = source if callable(source) else attribute(source)
    return f"{name}(v)"


def _read(source: FieldSource, record: Any, values: KeyValues) -> object:
    if isinstance(source, int):
        return values[source]
    return source(record) if callable(source) else attribute(source)(record)


class RowSet:
    """Rows of several rules together, compiled when they are first needed: a service binds rules
    for each of its spaces."""

    __slots__ = ("_compiled", "rules")

    def __init__(self, rules: Iterable[RowRule]) -> None:
        self.rules = tuple(rules)
        self._compiled: CompiledRows | None = None if self.rules else _no_rows

    def rows(self, record: Any, values: KeyValues) -> dict[str, Any]:
        """Return the keys of the rows that the record has, each with its contribution.

        Raises KeyFieldError, which names the field, where a field can't be written.
        """
        if self._compiled is None:
            self._compiled = compile_rows(self.rules)
        try:
            return self._compiled(record, values)
        except (ValueError, TypeError, KeyFieldError):
            # a field can't be written; the definition says which, without a private one's value
            return {
                _key(rule, fields): rule.contribution(record, values)
                for rule in self.rules
                for fields in rule.field_values(record, values)
            }


def _key(rule: RowRule, values: Sequence[object]) -> str:
    """Return the key of a row. The error of a field names the attribute that it comes from."""
    try:
        return rule.template.join(values)
    except KeyFieldError as error:
        name = error.fields.get("field")
        if rule.private:
            error.fields.pop("key", None)
        if name in rule.private:
            error.fields.pop("value", None)
        if name in rule.template.fields:
            source = rule.sources[rule.template.fields.index(str(name))]
            attribute = getattr(source, "attribute", source)
            if isinstance(attribute, str):
                error.fields["field"] = attribute
        raise


class HasRule(Protocol):
    """A kind of derived row, attached to its record."""

    rule: RowRule


D = TypeVar("D", bound=HasRule)


class ChangedRows(Generic[D]):
    """Tells which kinds of rows may derive other rows from the new state of a record than from the
    old one, compiled when it is first needed."""

    __slots__ = ("_compiled", "kinds")

    def __init__(self, kinds: Sequence[D]) -> None:
        self.kinds = kinds
        self._compiled: Callable[[Any, Any], list[D]] | None = None

    def between(self, before: Any, after: Any) -> Sequence[D]:
        """Return the kinds whose rows may differ; both states have the same key."""
        if self._compiled is None:
            self._compiled = _compile_changed(self.kinds)
        try:
            return self._compiled(before, after)
        except (ValueError, AttributeError, TypeError, LookupError):
            return self.kinds  # deriving the rows raises the error, if there is one


def _compile_changed(kinds: Sequence[D]) -> Callable[[Any, Any], list[D]]:
    scope: dict[str, Any] = {}
    lines = ["def changed(b, a):", " found = []"]
    for number, kind in enumerate(kinds):
        rule = kind.rule
        scope[f"k{number}"] = kind
        differs = " or ".join(_differences(rule, number, scope)) or "False"
        if rule.when is not None:
            scope[f"w{number}"] = rule.when
            when = f"w{number}"
            differs = f"not {when}(a) or {differs} if {when}(b) else {when}(a)"
        lines += [f" if {differs}:", f"  found.append(k{number})"]
    lines.append(" return found")
    compiled: Callable[[Any, Any], list[D]] = define("\n".join(lines), "changed", scope)
    return compiled


def _differences(rule: RowRule, number: int, scope: dict[str, Any]) -> Iterator[str]:
    """Return an expression for each part of a rule's rows that may differ."""
    if callable(rule.value) and not rule.is_value_of_key:
        yield "True"
        return
    for at, source in enumerate(rule.sources):
        if isinstance(source, int):
            continue
        old, new = f"o{number}_{at}", f"n{number}_{at}"
        expression = _expression(source, f"s{number}_{at}", scope)
        assert expression.endswith("(v)") or expression.startswith("v.")
        before, after = (
            expression.removesuffix("(v)") + f"({name})"
            if expression.endswith("(v)")
            else name + expression[1:]
            for name in ("b", "a")
        )
        # 1, 1.0 and True are equal, but not the same text in a key
        differs = f"({old} := {before}) != ({new} := {after})"
        differs += f" or {old}.__class__ is not {new}.__class__"
        if isinstance(source, FromAttribute):
            differs = f"b.{source.attribute} != a.{source.attribute} and ({differs})"
        yield differs


def _no_rows(record: Any, values: KeyValues) -> dict[str, Any]:
    return {}
