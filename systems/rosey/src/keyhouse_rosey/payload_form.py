"""The payload form: `<prefix>.<operation>` with the plugin's name in the body.

    rosey.db.kv.set {"plugin_name": "trivia", "key": "theme", "value": "dark", "ttl_seconds": 60}
    -> {"success": true, "data": {}}
    -> {"success": false, "error": {"code": "MISSING_FIELD", "message": "…"}}

Rosey's first database service had it, with four operations. It is off by default: a body can name
any plugin, so NATS permissions do not isolate plugins. Requests take turns by the plugin that they
name, together with those of the subject form.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from keyhouse.advice import nearest
from keyhouse.errors import KeyhouseError, MalformedError, MissingFieldError, RecordError
from keyhouse.nats.endpoint import Endpoint, Request, error_reply
from keyhouse.service.errors import SubjectError

__all__ = ["payload_endpoint"]

PAYLOAD_OPERATIONS: Final = ("set", "get", "delete", "list")

_SUCCESS: Final = b'{"success":true'
_NAME_CHARS_MAX: Final = 100
"""A longer text is not a plugin's name."""

_RENAMED: Final = {"ttl_seconds": "ttl"}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_name = msgspec.json.Decoder(str).decode
_decode_error = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def payload_endpoint(
    prefix: str,
    own_prefix: str,
    handle: Callable[[Request], Awaitable[bytes | None]],
    queue: str,
    may_receive: Callable[[str, str], bool],
) -> Endpoint:
    """Return the endpoint. `handle` handles the same requests in the subject form, below
    `own_prefix`. `may_receive` tells whether a reply subject is allowed to a plugin."""

    async def respond(request: Request) -> bytes | None:
        reply_subject = request.reply
        if not reply_subject.startswith("_INBOX.") and not may_receive(
            plugin_named(request.data), reply_subject
        ):
            return None
        try:
            reply = await handle(_subject_form(request, prefix, own_prefix))
        except KeyhouseError as error:
            flat = _decode_error(error_reply(error))
            described = {"code": flat["error_code"], "message": flat["message"]}
            return _encode({"success": False, "error": described})
        if reply is None:
            return None
        return b'%b,"data":{%b}' % (_SUCCESS, reply.removeprefix(_SUCCESS).lstrip(b","))

    return Endpoint(
        name=f"{prefix.replace('.', '-')}-payload",
        subject=f"{prefix}.*",
        handler=respond,
        operations={name: f"{prefix}.{name}" for name in PAYLOAD_OPERATIONS},
        rejected=lambda _, reply: may_receive("", reply),
        queue=queue,
        tenant_of_body=plugin_named,
        public=True,
    )


class _Named(msgspec.Struct):
    plugin_name: str = ""


_decode_named = msgspec.json.Decoder(_Named).decode


def plugin_named(data: bytes) -> str:
    """Return the plugin that a body names; an empty text if it names none, or is invalid."""
    try:
        name = _decode_named(data).plugin_name
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        return ""
    return name if len(name) <= _NAME_CHARS_MAX else ""


def _subject_form(request: Request, prefix: str, own_prefix: str) -> Request:
    """Return the request with the plugin in its subject."""
    operation = request.subject[len(prefix) + 1 :]
    if operation not in PAYLOAD_OPERATIONS:
        raise SubjectError(
            "Unknown operation.",
            subject=request.subject,
            **nearest(operation, PAYLOAD_OPERATIONS),
        )
    try:
        body = _decode(request.data or b"{}")
    except msgspec.ValidationError as error:
        raise RecordError("Invalid field in the request.", reason=str(error)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise MalformedError("The request is not JSON in UTF-8.", reason=str(error)) from None
    name = body.pop("plugin_name", None)
    if name is None:
        raise MissingFieldError("Missing required field: plugin_name")
    try:
        plugin = _decode_name(name)
    except msgspec.ValidationError as error:
        raise RecordError("Invalid field in the request.", reason=str(error)) from None
    data = _encode({_RENAMED.get(field, field): value for field, value in body.items()})
    subject = f"{own_prefix}.{plugin}.{operation}"
    return Request(subject, data, request.reply, request.publisher)
