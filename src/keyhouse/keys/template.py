"""Templates: the only place where keys are built and parsed.

    Template("idx:book:series:{series_id:ulid}:{position:010.3f?}:{id:ulid}")

A template consists of literal text and named, typed fields. `build` returns the key of some values,
`parse` the values of a key (None if the key does not match), and `span` the keys whose leading
fields have given values. A span covers whole fields: `/{show}/…` with show 1446 never covers
`/14460/…`.

`parse(build(x)) == x`: `keyhouse.keys.proof` proves it for each template when a schema is declared.

`build`, `join` and `split` are compiled (`keyhouse.keys.compiler`) on first use: a service binds
the templates for each of its many spaces.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from keyhouse.advice.arguments import checked
from keyhouse.advice.nearest import nearest
from keyhouse.errors import DeclarationError, KeyFieldError, UsageError
from keyhouse.keys import compiler
from keyhouse.keys.escape import PLAIN, Escape
from keyhouse.keys.hmac_segment import INDEX_KEY
from keyhouse.keys.key import Span
from keyhouse.keys.ranges import KeyRange, with_prefix, within
from keyhouse.keys.segment import Segment
from keyhouse.keys.segments import segment

_BY_ANOTHER: Final = ": a list by another member needs an Index that begins with it, as `by=`."
UNKNOWN: Final = object()
"""The value of a field, for `Template.bind`, that this program does not know: the keys that are
built have the field's name there, and only their other fields are checked."""

_FIELD = re.compile(r"\{([a-z_][a-z0-9_]*)(?::([^{}]*))?\}")


class Template(compiler.KeyParts):
    """A key pattern. `segments` are field types without a short name.

    Example: `Template("cust_{customer}", customer=Regex("[0-9]+"))`.
    """

    __slots__ = ("_build", "_join", "_match", "_read", "escape", "head", "normalizes", "text")

    @checked(DeclarationError)
    def __init__(self, text: str, *, escape: Escape = PLAIN, **segments: Segment) -> None:
        pieces = _FIELD.split(text)
        literals, names, specs = pieces[::3], pieces[1::3], pieces[2::3]
        self.text = text
        self.escape = escape
        self.fields = tuple(names)
        self.literals = tuple(literals)
        self._check_text(segments)
        types = [
            segments[name] if name in segments else segment(spec or "")
            for name, spec in zip(names, specs, strict=True)
        ]
        self.segments = tuple(
            type_.followed_by(tail, escape) for type_, tail in zip(types, literals[1:], strict=True)
        )
        self._check_ends()
        self._compile_later()

    def _compile_later(self) -> None:
        """Set the functions that compile themselves on first use."""
        self._build: Callable[[Any], str] = self._first_build
        self._join: Callable[[Any], str] = self._first_join
        self._match: Callable[[str], re.Match[str] | None] = self._first_match
        self.head = self.literals[0]
        """The literal text that all its keys start with."""
        self.normalizes = any(each.normalizes for each in self.segments)
        self._read: Callable[[Any], tuple[object, ...]] = self._first_read

    def _first_build(self, values: Any) -> str:
        self._build = compiler.compile_key(self, [f"v[n{at}]" for at in range(len(self.fields))])
        return self._build(values)

    def _first_join(self, values: Any) -> str:
        self._join = compiler.compile_key(self, [f"v[{at}]" for at in range(len(self.fields))])
        return self._join(values)

    def _first_match(self, key: str) -> re.Match[str] | None:
        self._match = compiler.compile_pattern(self)
        return self._match(key)

    def _first_read(self, texts: Any) -> tuple[object, ...]:
        self._read = compiler.compile_parser(self)
        return self._read(texts)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    @property
    def pattern(self) -> str:
        """Return a regular expression that matches all its keys, and possibly more."""
        return compiler.key_pattern(self)

    def tail(self, bound: Collection[str]) -> list[tuple[str, str, str]]:
        """Return name, pattern and following text of the fields from the first not `bound`.

        Keys of two templates with equal tails order alike once the bound fields are fixed, and
        differ only before.
        """
        fields = [
            (name, segment_.pattern, literal)
            for name, segment_, literal in zip(
                self.fields, self.segments, self.literals[1:], strict=True
            )
        ]
        while fields and fields[0][0] in bound:
            fields.pop(0)
        return fields

    def segment(self, field: str) -> Segment:
        """Return the type of a field, bound to the delimiter that follows it here."""
        return self.segments[self.fields.index(field)]

    def build(self, values: Mapping[str, object]) -> str:
        """Return the key of these values, one for each field.

        Raises KeyFieldError, which names the invalid or missing field, and UsageError for unknown
        fields.
        """
        try:
            key = self._build(values)
        except (ValueError, KeyError, TypeError):
            raise self._blame(values) from None
        if len(values) != len(self.fields):
            self._reject_unknown(values)
        return key

    def join(self, values: Sequence[object]) -> str:
        """Return the key of these values, given in the order of `fields`."""
        try:
            return self._join(values)
        except (ValueError, TypeError):
            raise self._blame(dict(zip(self.fields, values, strict=True))) from None

    def parse(self, key: str) -> dict[str, object] | None:
        """Return the values that build this key, or None if the key does not match."""
        values = self.split(key)
        return None if values is None else dict(zip(self.fields, values, strict=True))

    def split(self, key: str) -> tuple[object, ...] | None:
        """Return the values that build this key, in the order of `fields`, or None."""
        match = self._match(key)
        if match is None:
            return None
        try:
            return self._read(match.groups())
        except ValueError:
            return None

    def normalize(self, key: str, values: tuple[object, ...]) -> tuple[object, ...]:
        """Return the values as `split` returns them: normalized where the type does so."""
        return self.split(key) or values if self.normalizes else values

    def span(self, values: Mapping[str, object]) -> Span:
        """Return the span of the keys whose leading fields have these values."""
        lead = self._lead(values)
        return Span.only(lead) if len(values) == len(self.fields) else Span.prefix(lead)

    def range(
        self,
        values: Mapping[str, object],
        *,
        prefix: str | None = None,
        between: tuple[object, object] | None = None,
    ) -> KeyRange:
        """Return the keys whose leading fields have these values and whose next field starts with
        `prefix`, or is `between` two values (the second excluded; None: without that bound)."""
        if prefix is None and between is None:
            return KeyRange(self.span(values))
        if prefix is not None and between is not None:
            raise UsageError("A scan takes `prefix` or `between`, not both.", template=self.text)
        lead, index = self._lead(values), len(values)
        if index == len(self.fields):
            raise UsageError(
                "A range or prefix needs a field: all fields of the key are given.",
                template=self.text,
            )
        name, bound, tail = self.fields[index], self.segments[index], self.literals[index + 1]
        try:
            if between is None:
                return with_prefix(name, bound, lead, prefix)
            return within(name, bound, lead, tail, between)
        except ValueError as error:
            raise UsageError(f"The next field {error}.", field=name, template=self.text) from None

    def check(self, values: Mapping[str, object]) -> None:
        """Raise KeyFieldError for values, of some of its fields, that `bind` would reject."""
        for name, bound in zip(self.fields, self.segments, strict=True):
            if name in values and values[name] is not UNKNOWN:
                self._format(name, bound, values[name])

    def changes_by(self, values: Mapping[str, object]) -> bool:
        """Return whether `bind` fixes a field, or gives the key of an HMAC to one."""
        return any(name in values for name in self.fields) or (
            INDEX_KEY in values and any(each.is_hashed for each in self.segments)
        )

    def bind(self, values: Mapping[str, object]) -> "Template":
        """Return the template with some fields fixed: they become literal text. The value of
        `INDEX_KEY` is the key of fields that are stored as an HMAC."""
        if not self.changes_by(values):
            return self
        index_key = values.get(INDEX_KEY)
        literals = [self.head]
        left: dict[str, Segment] = {}
        for name, bound, tail in zip(self.fields, self.segments, self.literals[1:], strict=True):
            if name in values:
                is_known = values[name] is not UNKNOWN
                text = self._format(name, bound, values[name]) if is_known else f"{{{name}}}"
                literals[-1] += text + tail
            else:
                literals.append(tail)
                left[name] = bound.with_key(index_key) if isinstance(index_key, bytes) else bound
        text = literals[0] + "".join(
            f"{{{name}}}{tail}" for name, tail in zip(left, literals[1:], strict=True)
        )
        return self._of_parts(text, tuple(left), tuple(literals), tuple(left.values()))

    def under(self, prefix: "Template") -> "Template":
        """Return the template with the fields and text of another one in front."""
        joint = prefix.literals[-1] + self.literals[0]
        template = self._of_parts(
            prefix.text + self.text,
            prefix.fields + self.fields,
            (*prefix.literals[:-1], joint, *self.literals[1:]),
            prefix.segments + self.segments,
        )
        template._check_text({})
        return template

    def _of_parts(
        self,
        text: str,
        fields: tuple[str, ...],
        literals: tuple[str, ...],
        segments: tuple[Segment, ...],
    ) -> "Template":
        """Return a template of these parts in the same alphabet, whose text need not be parsed."""
        template = object.__new__(Template)
        template.text, template.escape = text, self.escape
        template.fields, template.literals, template.segments = fields, literals, segments
        template._compile_later()
        return template

    def _lead(self, values: Mapping[str, object]) -> str:
        """Return the text of a key up to the first field that is not given."""
        count = len(values)
        if count > len(self.fields) or any(name not in values for name in self.fields[:count]):
            self._reject_unknown(values, _BY_ANOTHER)
            raise UsageError(
                "A scan needs its leading fields: a field before those given is missing.",
                given=list(values),
                order=list(self.fields),
                template=self.text,
            )
        lead = self.head
        for name, bound, tail in zip(
            self.fields[:count], self.segments, self.literals[1:], strict=False
        ):
            lead += self._format(name, bound, values[name]) + tail
        return lead

    def _format(self, name: str, bound: Segment, value: object) -> str:
        try:
            return bound.format(value)
        except ValueError as error:
            shown = {} if bound.innermost.is_hashed else {"value": value}
            raise KeyFieldError(
                f"The field {error}.", field=name, **shown, template=self.text
            ) from None

    def _blame(self, values: Mapping[str, object]) -> KeyFieldError:
        for name, bound in zip(self.fields, self.segments, strict=True):
            if name not in values:
                others = sorted(set(values) - set(self.fields))
                unknown = {"unknown": others, **nearest(others[0], self.fields)} if others else {}
                return KeyFieldError(
                    "The key needs a field that was not given.",
                    field=name,
                    **unknown,
                    template=self.text,
                )
            try:
                self._format(name, bound, values[name])
            except KeyFieldError as error:
                return error
        raise AssertionError("every field is valid")

    def _reject_unknown(self, values: Mapping[str, object], advice: str = ".") -> None:
        unknown = sorted(set(values) - set(self.fields))
        if unknown:
            raise UsageError(
                f"The key has no such field{advice}",
                fields=unknown,
                **nearest(unknown[0], self.fields),
                template=self.text,
            )

    def _check_text(self, segments: Mapping[str, Segment]) -> None:
        if any(mark in literal for literal in self.literals for mark in "{}\0"):
            raise DeclarationError(
                "A template's fields are written {name} or {name:type}.", template=self.text
            )
        if len(set(self.fields)) != len(self.fields):
            raise DeclarationError("A template has a field twice.", template=self.text)
        if unused := sorted(set(segments) - set(self.fields)):
            raise DeclarationError(
                "The template has no such field.", fields=unused, template=self.text
            )
        if not self.text:
            raise DeclarationError("A template must not be empty.")

    def _check_ends(self) -> None:
        for segment_, tail in zip(self.segments[:-1], self.literals[1:], strict=False):
            if segment_.innermost.is_text and not tail:
                raise DeclarationError(
                    "A text field must be followed by literal text, or be the last.",
                    template=self.text,
                )
