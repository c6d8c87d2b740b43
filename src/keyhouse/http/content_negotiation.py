"""Content negotiation: media types of request bodies, and the Accept headers."""

import re

from keyhouse.http.errors import AcceptError, MediaTypeError

_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\b)")
_JSON = frozenset({"application/json", "application/json;charset=utf-8"})


def check_json(content_type: str | None, encoding: str | None) -> None:
    """Raise MediaTypeError unless the body is declared as plain JSON.

    A form on another site cannot declare that.
    """
    if encoding is not None and encoding.strip().lower() != "identity":
        raise MediaTypeError("Send the body without a content encoding.", encoding=encoding)
    if content_type in _JSON:
        return
    kind, _, rest = (content_type or "").lower().partition(";")
    charset = rest.replace(" ", "").replace('"', "")
    kind = kind.strip()
    is_json = kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
    if not is_json or charset not in ("", "charset=utf-8"):
        raise MediaTypeError("Send the body as application/json, in UTF-8.", sent=content_type)


def check_accepted(accept: str | None, media_type: str) -> None:
    """Raise AcceptError if the Accept header excludes the media type."""
    if accept is None or accept in ("*/*", media_type):
        return
    kind, _, _ = media_type.partition(";")
    family = kind.partition("/")[0] + "/*"
    weights = _weights(accept)
    best = next(
        (weights[name] for name in (kind, family, "*/*") if name in weights),
        0.0 if weights else 1.0,
    )
    if best <= 0:
        raise AcceptError("This route returns another media type.", gives=media_type)


def prefers_html(accept: str | None) -> bool:
    """Return whether the Accept header names HTML, and prefers it to JSON: that of a browser."""
    weights = _weights(accept or "")
    return weights.get("text/html", 0.0) > weights.get("application/json", 0.0)


def _weights(accept: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        name, *parameters = [each.strip() for each in part.split(";")]
        if name:
            weights[name] = _weight(parameters)
    return weights


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether the Accept-Encoding header allows a compressed body."""
    return _GZIP.search(accept_encoding) is not None
