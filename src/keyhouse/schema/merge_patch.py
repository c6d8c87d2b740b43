"""JSON Merge Patch (RFC 7396): the change of a document as a document."""

from typing import Any

__all__ = ["merge_patch"]


def merge_patch(target: Any, patch: Any) -> Any:
    """Return parsed JSON with a patch applied: null removes a member, an object is merged, and
    anything else replaces. Neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, part in patch.items():
        if part is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), part)
    return merged
