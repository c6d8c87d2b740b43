"""`python -m benchmarks.services.schema_by_hand FOLDER`: a record, and 50 by an index, by hand."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from benchmarks.services.app_process import run, serve
from benchmarks.services.by_hand import UPSERT, Rows, Tokens, encode, respond
from benchmarks.services.schema_server import SPACE, notes

_ONE = "SELECT key, revision, value FROM rows WHERE space = ? AND key = ?"
_KEYS = "SELECT key FROM rows WHERE space = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"


class NotesByHand:
    def __init__(self, folder: Path) -> None:
        self._rows = Rows(folder / "rows.db")
        self._tokens = Tokens("")
        execute = self._rows.connection.execute
        execute("BEGIN")
        for note in notes():
            execute(UPSERT, (SPACE, f"note:{note.id}", encode(note), 1))
            execute(UPSERT, (SPACE, f"by-author:{note.author}:{note.id}", b"1", 1))
        execute("COMMIT")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._tokens.trust(scope["headers"])
        execute = self._rows.connection.execute
        if not scope["query_string"]:
            id = scope["path"].rpartition("/")[2]
            ((_, _, value),) = execute(_ONE, (SPACE, f"note:{id}"))
            await respond(send, value)
            return
        query = parse_qs(scope["query_string"].decode())
        prefix = f"by-author:{query['author'][0]}:"
        limit = int(query["limit"][0])
        listed: Any = execute(_KEYS, (SPACE, prefix, prefix[:-1] + ";", limit)).fetchall()
        found = []
        for (key,) in listed:
            row: Any = execute(_ONE, (SPACE, f"note:{key[len(prefix) :]}")).fetchone()
            found.append(b'{"key":%b,"revision":%d,"value":%b}' % (encode(row[0]), *row[1:]))
        await respond(send, b'{"items":[%b]}' % b",".join(found))


async def main(folder: Path) -> None:
    await serve(NotesByHand(folder))


if __name__ == "__main__":
    run(main)
