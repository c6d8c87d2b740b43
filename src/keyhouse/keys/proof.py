"""Proofs about templates, by finite automata: every key has one parse, and only one template.

Theory of operation. A segment's `pattern` matches all texts that it formats, so a proof about the
regular languages of the patterns holds for the keys. Each question is the intersection of two
languages (built with `interegular`): if it is empty, the property holds; if not, its shortest text
is a witness, the key that the error shows.

    ambiguity   one key of a template has two parses
    spill       a scan by leading fields returns a key with another value there
    collision   two templates build the same key
    intrusion   a scan of one template returns a key of another

Most pairs of templates are decided by their literal heads alone, without an automaton.
"""

import re
from collections import deque
from functools import cache
from typing import Any

from interegular import FSM, parse_pattern
from interegular.fsm import OblivionError, anything_else, crawl

from keyhouse.keys.segment import Segment
from keyhouse.keys.template import Template

_concatenation: Any = FSM.concatenate
_crawl: Any = crawl
_is_live: Any = FSM.islive
"""Functions of `interegular` that have no type annotations."""

_ANY = "[^\\x00]*"
_ODD = "\N{REPLACEMENT CHARACTER}"
"""A character of a witness that may be any character not named in either template."""


def ambiguity(template: Template) -> str | None:
    """Return a key of the template with two parses; None proves that there is none."""
    for index, segment in enumerate(template.segments):
        if index + 1 == len(template.segments) and not template.literals[-1]:
            continue  # the last field ends where the key ends
        if _has_clear_end(segment, template.literals[index + 1]):
            continue
        left = _of_segment(segment)
        following = _concatenate(template, index)
        shared = _join(_extensions(left), following) & following
        if (witness := _witness(shared)) is not None:
            return _example_up_to(template, index) + _grown(left, witness, following) + witness
    return None


def spill(template: Template) -> str | None:
    """Return a key that a scan by leading fields returns though one of them has another value.

    None proves that there is no such key. Example: the words `x` and `x_y`, followed by `_`.
    """
    for index, segment in enumerate(template.segments[:-1]):
        tail = template.literals[index + 1]
        if _has_clear_end(segment, tail):
            continue
        left, following = _of_segment(segment), _concatenate(template, index)
        grown = _extensions(left)
        scanned = _join(_literal(tail), _of_pattern(_ANY))
        for shared, rest in (
            (_join(grown, following) & scanned, following),  # the other value is the longer one
            (following & _join(grown, scanned), scanned),
        ):
            if (witness := _witness(shared)) is not None:
                return _example_up_to(template, index) + _grown(left, witness, rest) + witness
    return None


def collision(one: Template, other: Template, bound: frozenset[str] = frozenset()) -> str | None:
    """Return a key that both templates build; None proves that there is none.

    `bound` are fields that a store fixes: both templates have the same value there.
    """
    shared = _shared_lead(one, other, bound)
    if not (_may_be_inside(one, other, shared) and _may_be_inside(other, one, shared)):
        return None
    return _example_with(one, shared, _after_fields(one, shared) & _after_fields(other, shared))


def intrusion(
    scanned: Template, other: Template, bound: frozenset[str] = frozenset()
) -> str | None:
    """Return a key of `other` that the widest scan of `scanned` returns; None proves there is none.

    `bound` are fields that a store fixes: its widest scan covers the keys that have them.
    """
    shared = _shared_lead(scanned, other, bound)
    if not _may_be_inside(scanned, other, shared):
        return None
    lead = _lead(scanned, bound)
    if shared == lead < len(scanned.fields) and other.literals[shared].startswith(
        scanned.literals[shared]
    ):
        return example(other)  # all of its keys are inside
    parts = [_literal(scanned.literals[shared])]
    for index in range(shared, lead):
        parts += [_of_segment(scanned.segments[index]), _literal(scanned.literals[index + 1])]
    if lead < len(scanned.fields):
        parts += [_of_pattern(_ANY)]  # else the scan covers one key
    return _example_with(scanned, shared, _join(*parts) & _after_fields(other, shared))


def example(template: Template) -> str:
    """Return the shortest text that matches the template."""
    return _example_of_first(template, len(template.fields)) + template.literals[-1]


def _join(*languages: FSM) -> FSM:
    joined: FSM = _concatenation(*languages)
    return joined


def _may_be_inside(scanned: Template, other: Template, shared: int) -> bool:
    """Return False if no key of `other` starts with the head of `scanned`: it needs no proof."""
    head, other_head = scanned.literals[shared], other.literals[shared]
    if other_head.startswith(head):
        return True
    return head.startswith(other_head) and _may_start_with(_after_fields(other, shared), head)


def _lead(template: Template, bound: frozenset[str]) -> int:
    """Return the number of leading fields that a store fixes."""
    return next(
        (i for i, name in enumerate(template.fields) if name not in bound), len(template.fields)
    )


def _shared_lead(one: Template, other: Template, bound: frozenset[str]) -> int:
    """Return the number of fixed leading fields that both templates format alike.

    Up to there, their keys in one store are the same.
    """
    if not bound:
        return 0
    lead = min(_lead(one, bound), _lead(other, bound))
    return next((i for i in range(lead) if _format_of(one, i) != _format_of(other, i)), lead)


def _format_of(template: Template, index: int) -> tuple[object, ...]:
    """Return everything that decides how a field is formatted. An optional type equals no other."""
    segment = template.segments[index]
    kind = segment if segment.is_optional else type(segment)
    ends = template.literals[index + 1][:1]
    return (
        template.literals[index],
        template.fields[index],
        kind,
        segment.pattern,
        template.escape,
        ends,
    )


def _example_with(template: Template, count: int, language: FSM) -> str | None:
    """Return an example of the template's first fields, followed by a text of the language."""
    witness = _witness(language)
    return None if witness is None else _example_of_first(template, count) + witness


def _example_of_first(template: Template, count: int) -> str:
    fields = zip(template.literals, template.segments[:count], strict=False)
    return "".join(literal + _shortest(segment) for literal, segment in fields)


@cache
def _shortest(segment: Segment) -> str:
    return _witness(_of_segment(segment)) or ""


def _example_up_to(template: Template, index: int) -> str:
    return _example_of_first(template, index) + template.literals[index]


def _grown(language: FSM, text: str, rest: FSM) -> str:
    """Return a text of the language that some first characters of `text` extend to another one.

    The remaining characters of `text` are in `rest`.
    """
    for cut in range(1, len(text) + 1):
        if rest.accepts(text[cut:]):
            for state, prefix in _texts(language).items():
                if (
                    state in language.finals
                    and _after(language, state, text[:cut]) in language.finals
                ):
                    return prefix
    raise AssertionError("a witness starts with such a text")


def _after(language: FSM, state: Any, text: str) -> object:
    """Return the state after reading the text; None: no text of the language starts with it."""
    for character in text:
        state = language.map.get(state, {}).get(language.alphabet[character])
    return state


def _has_clear_end(segment: Segment, tail: str) -> bool:
    """Return True if the segment has a fixed length or cannot contain the start of `tail`."""
    if segment.length is not None or segment.is_delimited:
        return True
    if not tail:
        return False
    if segment.is_text:
        return re.fullmatch(segment.pattern, tail[0]) is None
    return not _may_contain(_of_segment(segment), tail[0])


def _may_contain(language: FSM, character: str) -> bool:
    """Return True if some text of the language contains the character."""
    symbol = language.alphabet[character]
    return any(symbol in row and _is_live(language, row[symbol]) for row in language.map.values())


def _may_start_with(language: FSM, text: str) -> bool:
    """Return True if some text of the language starts with this one."""
    state = _after(language, language.initial, text)
    return state is not None and bool(_is_live(language, state))


def _extensions(language: FSM) -> FSM:
    """Return the language of all non-empty suffixes that extend one text to another one."""
    start = frozenset(language.finals)

    def step(state: object, symbol: Any) -> frozenset[object]:
        states = start if state == "start" else state
        assert isinstance(states, frozenset)
        reached = {language.map[s][symbol] for s in states if symbol in language.map.get(s, {})}
        if not reached:
            raise OblivionError
        return frozenset(reached)

    def final(state: object) -> bool:
        return isinstance(state, frozenset) and not start.isdisjoint(state)

    grown: FSM = _crawl(language.alphabet, "start", final, step)
    return grown


@cache
def _of_pattern(pattern: str) -> FSM:
    return parse_pattern(pattern).to_fsm()


def _literal(text: str) -> FSM:
    return _of_pattern(re.escape(text)) if text else _of_pattern("(?:)")


@cache
def _of_segment(segment: Segment) -> FSM:
    language = _of_pattern(_without_upper_bounds(segment.pattern))
    for text in segment.without:
        language = language - _of_pattern(_ANY + re.escape(text) + _ANY)
    return language


@cache
def _after_fields(template: Template, count: int) -> FSM:
    """Return the language of everything after the first `count` fields."""
    return _concatenate(template, count - 1)


def _concatenate(template: Template, index: int) -> FSM:
    """Return the language of everything after field `index`; -1: of the whole template."""
    parts = [_literal(template.literals[index + 1])]
    for position in range(index + 1, len(template.segments)):
        parts += [
            _of_segment(template.segments[position]),
            _literal(template.literals[position + 1]),
        ]
    return _join(*parts)


def _without_upper_bounds(pattern: str) -> str:
    """Return the pattern without upper bounds: it matches more, and its automaton stays small."""
    return re.sub(r"\{1,\d+\}", "+", pattern)


def _witness(language: FSM) -> str | None:
    """Return the shortest text of the language, or None if it is empty."""
    return next(
        (text for state, text in _texts(language).items() if state in language.finals), None
    )


def _texts(language: FSM) -> dict[object, str]:
    """Return each state with the shortest text that leads to it, shortest first."""
    characters = {key: _character(language, key) for key in language.alphabet.by_transition}
    texts: dict[object, str] = {language.initial: ""}
    queue = deque([language.initial])
    while queue:
        state = queue.popleft()
        for key, reached in language.map.get(state, {}).items():
            if reached not in texts:
                texts[reached] = texts[state] + characters[key]
                queue.append(reached)
    return texts


def _character(language: FSM, key: Any) -> str:
    symbols = [
        symbol for symbol in language.alphabet.by_transition[key] if symbol is not anything_else
    ]
    return str(min(symbols, key=_readability)) if symbols else _ODD


def _readability(symbol: str) -> tuple[bool, str]:
    return not symbol.isalnum(), symbol
