"""Comparison of two recordings: the differences by kind."""

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["compare"]


def compare(before: Path, after: Path, examples: int = 2) -> int:
    """Print the differences, the most frequent kinds first; return how many replies differ."""
    old, new = (
        [json.loads(line) for line in each.read_text().splitlines()] for each in (before, after)
    )
    kinds: dict[str, list[str]] = defaultdict(list)
    pairs, only = _paired(old, new)
    differing = 0
    for first, second in pairs:
        outcomes = [_outcome(each["reply"]) for each in (first, second)]
        if outcomes[0] != outcomes[1]:
            changes = [f"outcome: {outcomes[0]} -> {outcomes[1]}"]
        else:
            changes = list(_differences(first["reply"], second["reply"], "reply"))
        differing += bool(changes)
        request = " ".join(str(first.get(name, "")) for name in ("who", "request", "body"))
        for kind in changes:
            kinds[_masked(kind)].append(f"{kind}\n        [{first['section']}] {request[:250]}")
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(found)} x {kind}")
        for example in found[:examples]:
            print(f"      {example}")
    for line in only:
        print(f"only in one: {line}")
    print(f"{len(old)} and {len(new)} replies, {len(pairs)} to equal requests")
    print(f"{differing} differ, in {len(kinds)} kinds")
    return differing


def _outcome(reply: Any) -> str:
    """Return status, code and message of a reply, without its fields."""
    if isinstance(reply, list):
        problem, body = reply[0].get("Keyhouse-Problem"), reply[1]
        detail = problem["detail"] if isinstance(problem, dict) else ""
        if not isinstance(body, dict) or body.get("success", True):
            return "success"
        return f"{body.get('error_code')} {detail or body.get('message')}"
    if not isinstance(reply, dict):
        return str(reply)
    body = reply["body"]
    if not isinstance(body, dict) or reply["status"] < 400:
        return str(reply["status"])
    error = body["error"] if isinstance(body.get("error"), dict) else body
    return (
        " ".join(str(error.get(name, "")) for name in ("code", "detail", "message", "error"))
        + f" {reply['status']}"
    )


def _paired(old: list[Any], new: list[Any]) -> tuple[list[tuple[Any, Any]], list[str]]:
    """Return the replies to equal requests, and the requests of one recording alone."""
    keys = [[_request(line) for line in each] for each in (old, new)]
    if keys[0] == keys[1]:
        return list(zip(old, new, strict=True)), []
    pairs: list[tuple[Any, Any]] = []
    only: list[str] = []
    matcher = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(old[a:b], new[c:d], strict=True)
        else:
            only += [f"- {key[:200]}" for key in keys[0][a:b]]
            only += [f"+ {key[:200]}" for key in keys[1][c:d]]
    return pairs, only


def _request(line: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in line.items() if name != "reply"})


def _differences(first: Any, second: Any, at: str) -> Iterator[str]:
    if first == second and type(first) is type(second):
        return
    if isinstance(first, dict) and isinstance(second, dict):
        for name in [*first, *(each for each in second if each not in first)]:
            if name not in second:
                yield f"{at}.{name}: {_short(first[name])} -> absent"
            elif name not in first:
                yield f"{at}.{name}: absent -> {_short(second[name])}"
            else:
                yield from _differences(first[name], second[name], f"{at}.{name}")
        if first.keys() == second.keys() and first == second:
            yield f"{at}: order of members"
    elif isinstance(first, list) and isinstance(second, list):
        if sorted(map(_mask_names, first)) == sorted(map(_mask_names, second)):
            return
        if len(first) == len(second) and not all(isinstance(each, str) for each in first):
            for one, other in zip(first, second, strict=True):
                yield from _differences(one, other, f"{at}[]")
            return
        a, b = ([json.dumps(each, ensure_ascii=False) for each in side] for side in (first, second))
        changes = [
            line
            for line in difflib.unified_diff(a, b, n=0, lineterm="")
            if line[:3] not in ("---", "+++") and line[:2] != "@@"
        ]
        yield (
            f"{at}: "
            + " | ".join(_short(line, 160) for line in changes[:8])
            + ("" if len(changes) <= 8 else f" | … {len(changes)} lines")
        )
    else:
        yield f"{at}: {_short(first)} -> {_short(second)}"


def _masked(text: str) -> str:
    at, _, values = text.partition(": ")
    old, arrow, new = values.partition(" -> ")
    return f"{at}: {_mask(old)}{arrow}{_mask(new)}"


def _mask(text: str) -> str:
    return re.sub(r"\d+|'[^']*'|`[^`]*`|(?<=: )\"[^\"]*\"|<[A-Z]+ [^>]*>", "…", text)[:90]


def _mask_names(value: Any) -> str:
    """Return a part without the names of its ids, for lists in the order of ids."""
    return re.sub(r"<[A-Z]+ [^>]*>", "<>", json.dumps(value))


def _short(value: Any, limit: int = 220) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)})"
