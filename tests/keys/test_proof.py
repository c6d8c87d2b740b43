"""The prover is right: accepted templates do not conflict, and every witness is a real key."""

import re
import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.errors import KeyFieldError
from keyhouse.keys import (
    NATS,
    PLAIN,
    Choice,
    Integer,
    OptionalSegment,
    Regex,
    Segment,
    Template,
    TextSegment,
    proof,
)


def readings(template: Template, key: str) -> list[tuple[str, ...]]:
    """Return every way to split the key into fields, without the code under test."""

    def cuts(rest: str, index: int) -> list[tuple[str, ...]]:
        if not rest.startswith(template.literals[index]):
            return []
        rest = rest[len(template.literals[index]) :]
        if index == len(template.segments):
            return [] if rest else [()]
        pattern = re.compile(template.segments[index].pattern, re.DOTALL)
        found = []
        for end in range(len(rest) + 1):
            if pattern.fullmatch(rest[:end]):
                found += [(rest[:end], *others) for others in cuts(rest[end:], index + 1)]
        return found

    return cuts(key, 0)


AMBIGUOUS = [
    Template("x:{a}:{b}", a=Regex("[a-z:]+"), b=Regex("[a-z:]+")),
    Template("{kind:a|ab}{rest}", rest=Regex("[a-z]+")),
    Template("x:{a:ulid}:{b}{c}", b=Regex("[a-z]+"), c=Regex("[a-z]+")),
    Template("x:{b}{c}", b=Choice("a", "b", "bc"), c=Regex("c?d")),
    Template("{a:x|x_y}_{b}"),
    Template("{a}.{b}", escape=NATS),
    Template("x:{a}n{b}", a=OptionalSegment(Choice("nullnz")), b=Regex("z|znz")),
]


@pytest.mark.parametrize("template", AMBIGUOUS, ids=repr)
def test_an_ambiguous_template_shows_a_key_with_two_parses(template: Template) -> None:
    """The witness was once not a key of the template, and lacked the fields before the ambiguous
    one.
    """
    witness = proof.ambiguity(template)
    assert witness is not None
    assert len(readings(template, witness)) >= 2, witness


@pytest.mark.parametrize(
    "template",
    [
        Template("idx:book:series:{series_id:ulid}:{position:010.3f?}:{id:ulid}"),
        Template("{a}:{b}:{c}"),
        Template("{kind:a|ab}:{id}"),
        Template("{kind:a|ab}{id:ulid}"),
        Template("{a:04d}{b:04d}{c}"),
        Template("ns/{a}/x/{b}", escape=NATS),
        Template(
            "cust_{c}_streamkit_{i}", c=Regex("[A-Za-z0-9_-]{1,64}", without=("_streamkit_",))
        ),
        Template("{a:date}{b:text?}"),
        Template("{a:text?}:{b:ulid?}"),
        Template("{a:norm}"),
    ],
    ids=repr,
)
def test_an_unambiguous_template_is_proved(template: Template) -> None:
    assert proof.ambiguity(template) is None


COLLIDING = [
    ("b:{id}", "b:{other}"),
    ("b:{id}", "b:map:{id}"),
    ("b:{id:ulid}", "b:{id}"),
    ("{a}:{b}", "x:{c}"),
    ("k:{a:x|y}", "k:{b:y|z}"),
    ("n:{a:04d}", "n:{b:02d}{c:02d}"),
    ("n:{a:norm}", "n:{b}"),
    ("n:{a:ulid?}", "n:null"),
]


@pytest.mark.parametrize(("one", "other"), COLLIDING)
def test_templates_that_collide_show_a_key_of_both(one: str, other: str) -> None:
    first, second = Template(one), Template(other)
    witness = proof.collision(first, second)
    assert witness is not None
    assert proof.collision(second, first) is not None
    for template in (first, second):
        assert readings(template, witness), witness
        assert template.parse(witness) is not None, witness


APART = [
    ("b:{id:ulid}", "b:map:{id}"),
    ("a:{id}", "b:{id}"),
    ("n:{a:04d}", "n:{b:05d}"),
    ("k:{a:x|y}", "k:{b:z|w}"),
    ("{a}:{b}", "c"),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_templates_that_share_no_key_are_proved_disjoint(one: str, other: str) -> None:
    assert proof.collision(Template(one), Template(other)) is None


def test_a_delimiter_that_the_text_escapes_keeps_two_templates_apart() -> None:
    assert proof.collision(Template("b:{id}:x"), Template("b:{id}")) is not None, (
        "the last field may hold anything"
    )
    assert proof.collision(Template("b:{id}:x"), Template("b:{id}:y")) is None
    assert proof.collision(Template("b:{id}:x"), Template("b:{a}:{b}:x")) is None


INTRUDING = [
    ("b:{id:ulid}", "b:map:{id}"),
    ("b:{id}", "b:map:{id}"),
    ("{a}", "b:{id}"),
    ("{kind:x|y}|{id}", "/{a}/{b}"),
]


@pytest.mark.parametrize(("scanned", "within"), INTRUDING)
def test_a_scan_with_foreign_rows_shows_one_of_them(scanned: str, within: str) -> None:
    witness = proof.intrusion(Template(scanned), Template(within))
    assert witness is not None
    assert witness in Template(scanned).span({})
    assert Template(within).parse(witness) is not None


@pytest.mark.parametrize(
    ("scanned", "within"),
    [("b:{id}", "c:{id}"), ("b:map:{id}", "b:{id:ulid}"), ("meta:version", "meta:job:{x}")],
)
def test_a_scan_without_foreign_rows_is_proved(scanned: str, within: str) -> None:
    assert proof.intrusion(Template(scanned), Template(within)) is None


def test_fields_that_a_store_fixes_are_the_same_on_both_sides() -> None:
    one, other = Template("c_{customer}:a:{id}"), Template("c_{customer}:b:{id}")
    fixed = frozenset({"customer"})
    assert proof.collision(one, other, fixed) is None
    assert proof.intrusion(one, other, fixed) is None
    assert proof.intrusion(one, other) is not None, "a scan over all customers returns both"


def test_an_example_is_a_key_of_its_template() -> None:
    for text in (
        "b:{id:ulid}",
        "x:{a:norm}:{b:04d}",
        "{a:date}|{b:x|y}",
        "meta:version",
        "{a:ulid?}:",
    ):
        assert re.fullmatch(Template(text).pattern, proof.example(Template(text)))


# Small templates over a small alphabet, against every key there is up to some length.

LETTERS = "ab/"
SHORT = ["".join(key) for length in range(1, 6) for key in product(LETTERS, repeat=length)]

small_segments: st.SearchStrategy[Segment] = st.sampled_from(
    [
        TextSegment(),
        Regex("[ab]+"),
        Regex("a+"),
        Regex("a?b"),
        Regex("[ab][ab]?"),
        Regex("[ab/]+", without=("//",)),
        Choice("a", "ab"),
        Choice("b", "a/b"),
        Choice("ab", "b", "abb"),
        OptionalSegment(Choice("a", "b")),
        Integer(1),
    ]
)
small_literals = st.sampled_from(["", "a", "b", "/", "ab", "//", "a/"])


@st.composite
def small_templates(draw: st.DrawFn) -> Template:
    types = draw(st.lists(small_segments, min_size=1, max_size=3))
    text, named = draw(small_literals), {}
    for index, type_ in enumerate(types):
        last = index == len(types) - 1
        inner = "/" if isinstance(type_, TextSegment) and not last else draw(small_literals)
        name = "xyz"[index]
        named[name] = type_
        text += (
            "{"
            + name
            + "}"
            + (
                inner
                if not isinstance(type_, TextSegment) or not last
                else draw(st.sampled_from(["", "/"]))
            )
        )
    return Template(text, escape=PLAIN, **named)


def built_keys(template: Template) -> dict[str, set[tuple[str, ...]]]:
    """Return every short key of the template with its values, by trying all values."""
    options: list[list[object]] = []
    for segment in template.segments:
        written: list[object] = []
        for value in (None, 1, *SHORT[:120]):
            try:
                segment.format(value)
            except ValueError:
                continue
            written.append(value)
        options.append(written if len(template.segments) < 3 else written[:14])
    found: dict[str, set[tuple[str, ...]]] = {}
    for values in product(*options):
        try:
            key = template.join(values)
        except KeyFieldError:
            continue  # a Regex may reject a value together with the text after it
        found.setdefault(key, set()).add(tuple(map(repr, values)))
    return found


@given(template=small_templates())
def test_the_prover_finds_every_key_with_two_parses(
    template: Template,
) -> None:
    witness = proof.ambiguity(template)
    if witness is None:
        for key, values in built_keys(template).items():
            assert len(values) == 1, (key, values)
            assert template.split(key) is not None, key
    else:
        assert len(readings(template, witness)) >= 2, witness


@given(one=small_templates(), other=small_templates())
def test_the_prover_finds_every_key_of_two_templates(one: Template, other: Template) -> None:
    witness = proof.collision(one, other)
    if witness is None:
        shared = built_keys(one).keys() & built_keys(other).keys()
        assert not shared
        assert not [
            key for key in SHORT if one.parse(key) is not None and other.parse(key) is not None
        ]
    else:
        assert readings(one, witness) and readings(other, witness), witness


@given(scanned=small_templates(), other=small_templates())
def test_the_prover_finds_every_foreign_row_in_a_scan(scanned: Template, other: Template) -> None:
    witness = proof.intrusion(scanned, other)
    if witness is None:
        assert not [key for key in built_keys(other) if key in scanned.span({})]
    else:
        assert witness in scanned.span({}) and readings(other, witness), witness


@given(one=small_templates(), other=small_templates())
def test_the_prover_is_right_about_stores_that_fix_a_field(one: Template, other: Template) -> None:
    """In one store both templates have the same value there, and scans cover only that value."""
    fixed = frozenset({"x"})
    apart, pure = (
        proof.collision(one, other, fixed) is None,
        proof.intrusion(one, other, fixed) is None,
    )
    for value in ("a", "b", "ab", "abb", "a/b", "aab", "b/", None, 1):
        try:
            first, second = one.bind({"x": value}), other.bind({"x": value})
        except KeyFieldError:
            continue
        keys = built_keys(second)
        assert not (apart and built_keys(first).keys() & keys.keys()), value
        assert not (pure and [key for key in keys if key in first.span({})]), value


@given(template=small_templates())
def test_the_prover_finds_every_key_of_another_value_in_a_span(
    template: Template,
) -> None:
    if proof.ambiguity(template) is not None or proof.spill(template) is not None:
        return
    keys = list(built_keys(template))[:150]
    parsed = {key: template.split(key) or () for key in keys}
    for key in keys:
        for count in range(len(template.fields)):
            span = template.span(dict(zip(template.fields[:count], parsed[key], strict=False)))
            for other in keys:
                assert (other in span) == (parsed[other][:count] == parsed[key][:count]), (
                    key,
                    other,
                    count,
                )


@pytest.mark.parametrize(
    "character",
    [*"!\"#$%&'()*+,-./:;<=>?@[\\]^_`|~ ", "\n", "\r", "\t", "\x7f", "é", "\u2028", "😀"],
)
def test_any_character_may_separate_fields(character: str) -> None:
    if character == "%":
        return  # the mark of escapes, refused behind text
    template = Template(f"x{character}{{a}}{character}{{b:p|q}}{character}{{c}}")
    assert proof.ambiguity(template) is None
    assert (
        proof.collision(
            template, Template(f"x{character}{{a}}{character}{{b:r|s}}{character}{{c}}")
        )
        is None
    )
    witness = proof.collision(template, Template(f"x{character}{{d}}"))
    assert witness is not None and template.parse(witness) is not None


def test_a_proof_is_fast() -> None:
    started = time.thread_time()
    one = Template("idx:book:series:{a:ulid}:{p:010.3f?}:{b:ulid}")
    other = Template("idx:book:{kind:series|author|narrator}:{x}")
    assert proof.ambiguity(one) is None and proof.spill(one) is None
    assert proof.collision(one, other) is not None
    assert proof.intrusion(one, other) is not None
    assert time.thread_time() - started < 5
