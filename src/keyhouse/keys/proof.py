"""Proofs about templates, by regular languages: that a key has one reading, and that no key has two templates.

Every segment's `pattern` covers all that it writes, so what is proved of the patterns holds for the keys. A proof that
fails shows a witness: the shortest key that two readings share. Most pairs are settled by their literal heads alone; only
the rest are turned into automata (`interegular`).
"""

import re
from collections import deque
from functools import cache
from typing import Any

from interegular import FSM, parse_pattern
from interegular.fsm import OblivionError, anything_else, crawl

from keyhouse.keys.segments import OptionalSegment, Regex, Segment, Text
from keyhouse.keys.template import Template

_concatenation: Any = FSM.concatenate
_crawl: Any = crawl
_is_live: Any = FSM.islive
"""Functions of `interegular` that carry no types."""

_ANY = "[^\\x00]*"
_ODD = "\N{REPLACEMENT CHARACTER}"
"""Stands in a witness for "any character not named in either template"."""


def ambiguity(template: Template) -> str | None:
    """A key of the template with two readings, or `None`: proved to have none."""
    for index, segment in enumerate(template.segments):
        if index + 1 == len(template.segments) and not template.literals[-1]:
            continue  # nothing follows: it ends where the key ends
        if _ends_itself(segment, template.literals[index + 1]):
            continue
        left = _of_segment(segment)
        following = _concatenate(template, index)
        shared = _join(_extensions(left), following) & following
        if (witness := _witness(shared)) is not None:
            return _shown_up_to(template, index) + _grown(left, witness, following) + witness
    return None


def spill(template: Template) -> str | None:
    """A key that a scan bound by some leading fields returns, though one of them has another value; or `None`: proved that
    every such scan returns its own keys. Words that begin each other (`x` and `x_y`, before `_`) spill."""
    for index, segment in enumerate(template.segments[:-1]):
        tail = template.literals[index + 1]
        if _ends_itself(segment, tail):
            continue
        left, following = _of_segment(segment), _concatenate(template, index)
        grown = _extensions(left)
        scanned = _join(_literal(tail), _of_pattern(_ANY))
        for shared, behind in (
            (_join(grown, following) & scanned, following),  # the other value is the longer one
            (following & _join(grown, scanned), scanned),
        ):
            if (witness := _witness(shared)) is not None:
                return _shown_up_to(template, index) + _grown(left, witness, behind) + witness
    return None


def collision(one: Template, other: Template, bound: frozenset[str] = frozenset()) -> str | None:
    """A key that both templates build, or `None`: proved that there is none. `bound`: fields that a store fixes, so that
    both templates have the same value there."""
    shared = _shared_lead(one, other, bound)
    if not (_may_lie_in(one, other, shared) and _may_lie_in(other, one, shared)):
        return None
    return _shown_behind(one, shared, _behind(one, shared) & _behind(other, shared))


def intrusion(
    scanned: Template, other: Template, bound: frozenset[str] = frozenset()
) -> str | None:
    """A key of `other` that lies in the widest scan of `scanned`, or `None`: proved that there is none. `bound`: fields that
    a store fixes; its widest scan is of the keys that have them."""
    shared = _shared_lead(scanned, other, bound)
    if not _may_lie_in(scanned, other, shared):
        return None
    lead = _lead(scanned, bound)
    if shared == lead < len(scanned.fields) and other.literals[shared].startswith(
        scanned.literals[shared]
    ):
        return example(other)  # all of them lie in it
    parts = [_literal(scanned.literals[shared])]
    for index in range(shared, lead):
        parts += [_of_segment(scanned.segments[index]), _literal(scanned.literals[index + 1])]
    if lead < len(scanned.fields):
        parts += [_of_pattern(_ANY)]  # else its scan is of one key
    return _shown_behind(scanned, shared, _join(*parts) & _behind(other, shared))


def example(template: Template) -> str:
    """The shortest text of the template's shape."""
    return _shown_first(template, len(template.fields)) + template.literals[-1]


def _join(*languages: FSM) -> FSM:
    joined: FSM = _concatenation(*languages)
    return joined


def _may_lie_in(scanned: Template, other: Template, shared: int) -> bool:
    """Whether a key of `other` may begin with the head of `scanned`, behind what they share: `False` spares a proof."""
    head, other_head = scanned.literals[shared], other.literals[shared]
    if other_head.startswith(head):
        return True
    return head.startswith(other_head) and _may_begin(_behind(other, shared), head)


def _lead(template: Template, bound: frozenset[str]) -> int:
    """How many fields, from the first on, a store fixes."""
    return next(
        (i for i, name in enumerate(template.fields) if name not in bound), len(template.fields)
    )


def _shared_lead(one: Template, other: Template, bound: frozenset[str]) -> int:
    """How many of those the two templates begin with and write alike: up to there, their keys in one store are the same."""
    if not bound:
        return 0
    most = min(_lead(one, bound), _lead(other, bound))
    return next((i for i in range(most) if _written_as(one, i) != _written_as(other, i)), most)


def _written_as(template: Template, index: int) -> tuple[object, ...]:
    """What decides how a field is written; a type within a type is not looked into, and is like no other."""
    segment = template.segments[index]
    kind = segment if isinstance(segment, OptionalSegment) else type(segment)
    ends = template.literals[index + 1][:1]
    return (
        template.literals[index],
        template.fields[index],
        kind,
        segment.pattern,
        template.escape,
        ends,
    )


def _shown_behind(template: Template, count: int, language: FSM) -> str | None:
    """The shortest text of the language, behind an example of the template's first fields."""
    witness = _witness(language)
    return None if witness is None else _shown_first(template, count) + witness


def _shown_first(template: Template, count: int) -> str:
    fields = zip(template.literals, template.segments[:count], strict=False)
    return "".join(literal + _shortest(segment) for literal, segment in fields)


@cache
def _shortest(segment: Segment) -> str:
    return _witness(_of_segment(segment)) or ""


def _shown_up_to(template: Template, index: int) -> str:
    return _shown_first(template, index) + template.literals[index]


def _grown(language: FSM, text: str, behind: FSM) -> str:
    """A text of the language that grows into another by the first characters of `text`, the rest of which is `behind`."""
    for cut in range(1, len(text) + 1):
        if behind.accepts(text[cut:]):
            for state, shown in _texts(language).items():
                if (
                    state in language.finals
                    and _after(language, state, text[:cut]) in language.finals
                ):
                    return shown
    raise AssertionError("a witness is made of such a text")


def _after(language: FSM, state: Any, text: str) -> object:
    """The state that the text leads to; `None`: out of the language."""
    for character in text:
        state = language.map.get(state, {}).get(language.alphabet[character])
    return state


def _ends_itself(segment: Segment, tail: str) -> bool:
    """Whether it is plain where it ends: all of it has one length, or what follows starts with what it can't hold."""
    if segment.fixed or (isinstance(segment, Regex) and segment.ended):
        return True
    if not tail:
        return False
    if isinstance(segment, Text):
        return re.fullmatch(segment.pattern, tail[0]) is None
    return not _may_hold(_of_segment(segment), tail[0])


def _may_hold(language: FSM, character: str) -> bool:
    """Whether some text of the language holds the character."""
    symbol = language.alphabet[character]
    return any(symbol in row and _is_live(language, row[symbol]) for row in language.map.values())


def _may_begin(language: FSM, text: str) -> bool:
    """Whether some text of the language begins with this one."""
    state = _after(language, language.initial, text)
    return state is not None and bool(_is_live(language, state))


def _extensions(language: FSM) -> FSM:
    """All texts, other than none, by which a text of the language grows into another of the language."""
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
    language = _of_pattern(_unbounded(segment.pattern))
    if isinstance(segment, Regex):
        for text in segment.without:
            language = language - _of_pattern(_ANY + re.escape(text) + _ANY)
    return language


@cache
def _behind(template: Template, count: int) -> FSM:
    """The language of what follows the first `count` fields."""
    return _concatenate(template, count - 1)


def _concatenate(template: Template, index: int) -> FSM:
    """The language of what follows field `index` (of the whole template for -1)."""
    parts = [_literal(template.literals[index + 1])]
    for position in range(index + 1, len(template.segments)):
        parts += [
            _of_segment(template.segments[position]),
            _literal(template.literals[position + 1]),
        ]
    return _join(*parts)


def _unbounded(pattern: str) -> str:
    """The pattern without upper bounds on repetition: it covers more, and its automaton stays small."""
    return re.sub(r"\{1,\d+\}", "+", pattern)


def _witness(language: FSM) -> str | None:
    """The shortest text of the language; `None` when it has none."""
    return next(
        (shown for state, shown in _texts(language).items() if state in language.finals), None
    )


def _texts(language: FSM) -> dict[object, str]:
    """Each state with the shortest text that leads to it, shortest first."""
    shown = {key: _shown(language, key) for key in language.alphabet.by_transition}
    texts: dict[object, str] = {language.initial: ""}
    queue = deque([language.initial])
    while queue:
        state = queue.popleft()
        for key, reached in language.map.get(state, {}).items():
            if reached not in texts:
                texts[reached] = texts[state] + shown[key]
                queue.append(reached)
    return texts


def _shown(language: FSM, key: Any) -> str:
    symbols = [
        symbol for symbol in language.alphabet.by_transition[key] if symbol is not anything_else
    ]
    return str(min(symbols, key=_plainness)) if symbols else _ODD


def _plainness(symbol: str) -> tuple[bool, str]:
    return not symbol.isalnum(), symbol
