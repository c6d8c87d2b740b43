"""Laws of templates for any types, literals and values: build, parse, span and bind."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from keyhouse.errors import DeclarationError, KeyFieldError, UsageError
from keyhouse.keys import NATS, Choice, Regex, Span, Template, TextSegment, normal, proof
from keyhouse.limits import KEY_BYTES_MAX
from tests.keys import strategies as keys


def sound(drawn: keys.Drawn) -> bool:
    """Return True if a schema would accept the template."""
    return proof.ambiguity(drawn.template) is None and proof.spill(drawn.template) is None


def built(drawn: keys.Drawn, values: dict[str, Any]) -> str:
    try:
        return drawn.template.build(values)
    except KeyFieldError:
        assume(False)  # a Regex that conflicts with the next literal, or a key too long
        raise


@given(data=st.data(), drawn=keys.templates())
def test_a_built_key_parses_back(data: st.DataObject, drawn: keys.Drawn) -> None:
    assume(proof.ambiguity(drawn.template) is None)
    values = data.draw(keys.values_of(drawn))
    key = built(drawn, values)
    assert drawn.template.parse(key) == drawn.read(values)
    assert drawn.template.split(key) == tuple(drawn.read(values).values())
    assert drawn.template.join(list(values.values())) == key


@given(data=st.data(), drawn=keys.templates())
def test_a_parsed_key_is_built_again_from_its_values(
    data: st.DataObject, drawn: keys.Drawn
) -> None:
    assume(proof.ambiguity(drawn.template) is None)
    key = data.draw(keys.mutations(built(drawn, data.draw(keys.values_of(drawn)))))
    read = drawn.template.parse(key)
    if read is not None:
        assert drawn.template.build(read) == key


@given(data=st.data(), drawn=keys.templates())
def test_a_span_holds_the_keys_with_its_leading_values_and_no_key_with_others(
    data: st.DataObject, drawn: keys.Drawn
) -> None:
    assume(sound(drawn))
    one, other = data.draw(keys.values_of(drawn)), data.draw(keys.values_of(drawn))
    count = data.draw(st.integers(0, len(drawn.template.fields)))
    for name in drawn.template.fields[: data.draw(st.integers(0, count))]:
        other[name] = one[name]  # or hardly any two would share a lead
    lead = drawn.template.fields[:count]
    span = drawn.template.span({name: one[name] for name in lead})
    alike = all(drawn.read(one)[name] == drawn.read(other)[name] for name in lead)
    assert built(drawn, one) in span
    assert (built(drawn, other) in span) == alike


@given(data=st.data(), drawn=keys.templates())
def test_fixing_some_fields_changes_no_key(data: st.DataObject, drawn: keys.Drawn) -> None:
    assume(sound(drawn))
    values = data.draw(keys.values_of(drawn))
    key = built(drawn, values)
    fixed = data.draw(st.sets(st.sampled_from(drawn.template.fields)))
    bound = drawn.template.bind({name: values[name] for name in fixed})
    left = {name: value for name, value in values.items() if name not in fixed}
    assert bound.fields == tuple(left)
    assert bound.build(left) == key
    assert bound.parse(key) == {name: drawn.read(values)[name] for name in left}


@given(data=st.data(), drawn=keys.templates())
def test_a_store_that_fixes_fields_reads_no_key_of_other_values(
    data: st.DataObject, drawn: keys.Drawn
) -> None:
    assume(sound(drawn))
    one, other = data.draw(keys.values_of(drawn)), data.draw(keys.values_of(drawn))
    first = drawn.template.fields[0]
    assume(drawn.read(one)[first] != drawn.read(other)[first])
    bound = drawn.template.bind({first: one[first]})
    key = built(drawn, other)
    assert bound.parse(key) is None
    assert key not in bound.span({})


searched = [keys.BY_NAME["text"], keys.BY_NAME["norm"]]


@given(
    data=st.data(),
    drawn=keys.templates(kinds=searched, first=keys.BY_NAME["text"]),
    start=keys.texts,
)
def test_a_prefix_search_finds_exactly_the_matching_values(
    data: st.DataObject, drawn: keys.Drawn, start: str
) -> None:
    assume(sound(drawn))
    values = data.draw(keys.values_of(drawn))
    if data.draw(st.booleans()):
        values[drawn.template.fields[0]] = start + values[drawn.template.fields[0]]
    begins = values[drawn.template.fields[0]].startswith(start)
    key, found = built(drawn, values), drawn.template.range({}, prefix=start)
    assert keys.covers(drawn.template, found, key) == begins


@given(text=keys.texts, start=keys.texts)
def test_a_prefix_search_in_normalized_text_normalizes_the_prefix(text: str, start: str) -> None:
    template = Template("n:{name:norm}:")
    assume(normal(text) and normal(start))
    found = template.build({"name": text}) in template.range({}, prefix=start).span
    assert found == normal(text).startswith(normal(start) + (" " if start[-1].isspace() else ""))


def test_a_whole_segment_is_never_the_beginning_of_another() -> None:
    """`/1446` does not cover `/14460`, a common mistake of path stores."""
    path = Template("/{show}/{season}/{asset}")
    assert path.build({"show": "14460", "season": "1", "asset": "9"}) not in path.span(
        {"show": "1446"}
    )
    assert path.build({"show": "1446", "season": "1", "asset": "9"}) in path.span({"show": "1446"})
    assert path.span({"show": "1446", "season": "1", "asset": "9"}) == Span(
        "/1446/1/9", "/1446/1/9\0"
    )


def test_a_choice_whose_words_hold_the_delimiter_does_not_spill_into_a_longer_word() -> None:
    """A scan of kind `x` returned rows of kind `x_y`, since `x_` is a prefix of `x_y_…`.

    A schema rejects such a template with a witness key.
    """
    template = Template("{kind:x|x_y}_{id:ulid}")
    assert proof.ambiguity(template) is None
    witness = proof.spill(template)
    assert witness is not None
    assert witness in template.span({"kind": "x"})
    assert (template.parse(witness) or {})["kind"] == "x_y"


def test_a_choice_that_ends_itself_does_not_spill() -> None:
    assert proof.spill(Template("{kind:a|ab}:{id}")) is None
    assert proof.spill(Template("k:{id:ulid}:{position:010.3f?}:{book:ulid}")) is None


@pytest.mark.parametrize("mark", ["%", "0", "5", "A", "F"])
def test_text_followed_by_an_escape_character_is_rejected_when_declared(mark: str) -> None:
    """An escape is `%` and digits: if a digit were the delimiter, `%30` would be split in two."""
    with pytest.raises(DeclarationError):
        Template("x:{a}" + mark + "{b}")


@pytest.mark.parametrize("text", ["{a}{b}", "{a}{b:ulid}", "{a:norm}{b:04d}", "{a:text?}{b:x|y}"])
def test_text_without_a_delimiter_is_rejected_when_declared(text: str) -> None:
    """A scan by it would cover longer texts, and a proof about `{a}{b:ulid}` needs 2**26 states."""
    with pytest.raises(DeclarationError):
        Template("p:" + text)


@pytest.mark.parametrize("space", ["{id}", "{", "}", "{x:ulid}", "a{b", "{customer}"])
def test_a_fixed_value_is_text_and_not_a_template(space: str) -> None:
    """A tenant named `{id}` was parsed as a field when the store fixed it."""
    template = Template("cust_{customer}_{id}")
    bound = template.bind({"customer": space})
    assert bound.fields == ("id",)
    assert bound.build({"id": "7"}) == template.build({"customer": space, "id": "7"})
    assert bound.parse(template.build({"customer": space, "id": "7"})) == {"id": "7"}


def test_fixing_a_field_that_cannot_be_written_names_it() -> None:
    with pytest.raises(KeyFieldError) as refused:
        Template("{n:04d}:{id}").bind({"n": -1})
    assert refused.value.fields["field"] == "n"


def test_a_template_none_of_whose_fields_is_fixed_is_itself() -> None:
    template = Template("b:{id}")
    assert template.bind({"other": 1}) is template


@pytest.mark.parametrize("given", [{"zz": 1}, {"a": "1", "zz": 1}, {"a": "1", "b": "2", "zz": 1}])
def test_a_span_by_an_unknown_field_is_rejected(given: dict[str, Any]) -> None:
    """With all fields and a misspelt one, the span covered every key with that prefix."""
    with pytest.raises(UsageError, match="no such field: a list by another member") as refused:
        Template("x:{a}:{b}").span(given)
    assert refused.value.fields["fields"] == ["zz"]


def test_a_span_skips_no_field() -> None:
    with pytest.raises(UsageError, match="leading fields"):
        Template("x:{a}:{b}").span({"b": "1"})


def test_a_key_is_built_only_from_its_own_fields() -> None:
    with pytest.raises(UsageError, match="no such field"):
        Template("x:{a}:{b}").build({"a": "1", "b": "2", "zz": 1})


@pytest.mark.parametrize("start", ["\ud800", "a\0"])
def test_a_prefix_that_no_key_can_have_is_rejected(start: str) -> None:
    """A lone surrogate reached the engine's driver, which raised its own error."""
    with pytest.raises(UsageError):
        Template("x:{a}").range({}, prefix=start)


def test_an_empty_prefix_finds_all_values() -> None:
    assert Template("x:{a}:").range({}, prefix="").span == Template("x:{a}:").span({})


@pytest.mark.parametrize(
    ("template", "values"),
    [
        (Template("x:{a:ulid}"), {}),
        (Template("x:{a}"), {"a": "1"}),
        (Template("x:{a:text?}"), {}),
    ],
)
def test_only_text_is_searched_by_prefix(template: Template, values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"The next field|all fields"):
        template.range(values, prefix="0")


@pytest.mark.parametrize(
    "text",
    ["", "a{b", "a}b", "{A}", "{a-b}", "{a}:{a}", "a\0{b}", "{}", "{a:{b}}", "{a:nope}", "{1a}"],
)
def test_a_malformed_template_is_rejected_when_declared(text: str) -> None:
    with pytest.raises(DeclarationError):
        Template(text)


def test_a_type_for_an_unknown_field_is_rejected_when_declared() -> None:
    with pytest.raises(DeclarationError) as refused:
        Template("{a}", b=TextSegment())
    assert refused.value.fields["fields"] == ["b"]


def test_a_key_at_the_limit_is_built_and_one_over_it_is_rejected() -> None:
    template = Template("k:{x}:")
    room = KEY_BYTES_MAX - len("k::")
    for fill in ("a" * room, "é" * (room // 2)):
        assert template.parse(template.build({"x": fill})) == {"x": fill}
    for fill in ("a" * (room + 1), "é" * (room // 2 + 1), "%" * (room // 3 + 1)):
        with pytest.raises(KeyFieldError):
            template.build({"x": fill})


HOSTILE = [
    "..",
    "a..b",
    ">",
    "*",
    "%",
    "_",
    "/",
    "\\",
    ":",
    " ",
    "\r",
    "\n",
    "2001:db8::1",
    "../",
    "%2e%2e",
    "e\u0301",
]
HOSTILE += [
    "\u00e9",
    "\u202e",
    "\u200b",
    "cust_2_streamkit_notes_1",
    "__proto__",
    "null",
    "'; DROP TABLE rows;--",
]


@pytest.mark.parametrize("text", ["k:{x}", "k:{x}:{y}", "k/{x}/{y}"])
@pytest.mark.parametrize("escape", [Template("a").escape, NATS], ids=["plain", "nats"])
def test_hostile_text_stays_in_its_field(text: str, escape: Any) -> None:
    template = Template(text, escape=escape)
    seen = set()
    for text in HOSTILE:
        values = dict.fromkeys(template.fields, text)
        key = template.build(values)
        assert template.parse(key) == values
        seen.add(key)
    assert len(seen) == len(HOSTILE), "two different texts share one key"


def test_a_template_without_fields_is_one_key() -> None:
    template = Template("meta:version")
    assert template.build({}) == "meta:version"
    assert template.span({}) == Span.only("meta:version")
    assert template.parse("meta:version") == {}
    assert template.parse("meta:versions") is None


def test_a_template_has_a_readable_repr() -> None:
    assert repr(Template("b:{id}")) == "Template('b:{id}')"
    assert Template("b:{id}").head == "b:"


def test_a_choice_longest_word_first_reads_every_word() -> None:
    template = Template("{kind}{id:04d}", kind=Choice("a", "ab", "abc"))
    for word, longer in pairwise(["a", "ab", "abc"]):
        assert template.parse(template.build({"kind": word, "id": 1})) == {"kind": word, "id": 1}
        assert template.parse(template.build({"kind": longer, "id": 1})) == {
            "kind": longer,
            "id": 1,
        }


def test_a_regex_field_ends_at_text_it_cannot_contain() -> None:
    customer = Regex("[A-Za-z0-9_-]{1,64}", without=("_streamkit_",))
    template = Template("cust_{customer}_streamkit_notes_{id}", customer=customer)
    assert template.parse("cust_12_streamkit_notes_a_streamkit_notes_b") == {
        "customer": "12",
        "id": "a_streamkit_notes_b",
    }
    assert template.parse("cust_" + "x" * 65 + "_streamkit_notes_b") is None


def test_a_key_of_fields_with_fixed_lengths_is_not_too_long_either() -> None:
    names = [f"a{number}" for number in range(KEY_BYTES_MAX // 26)]
    template = Template(":".join(f"{{{name}:ulid}}" for name in names))
    with pytest.raises(KeyFieldError, match="bytes"):
        template.build(dict.fromkeys(names, "0" * 26))
