"""A trivia game for a chat: a plugin whose whole state is in plugin storage.

Kill it during a round and start it again: the round continues.

    keyhouse serve rosey                                    # one terminal: prints its NATS URL
    python examples/trivia.py nats://127.0.0.1:4222         # another: the game
    nats pub chat.in '{"user": "ann", "text": "!trivia"}'   # or any program that connects the chat

It subscribes to `chat.in` (`{"user", "text"}`) and publishes to `chat.out` (`{"text"}`). `!trivia`
starts a round, the first correct answer scores a point, `!score` prints the table.

Its keys:

    round           the open question, with a TTL: a round without an answer expires
    score:<user>    points, by `incr`: two correct answers at once are two points
    asked           the number of rounds, so that questions take turns
"""

import asyncio
import json
import sys
from contextlib import suppress

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from keyhouse.errors import ConflictError
from keyhouse_rosey.client import PluginStorage

QUESTIONS = [
    ("What is the largest planet of our solar system?", "jupiter"),
    ("In which year did the first human land on the moon?", "1969"),
    ("Which ocean is the deepest?", "pacific"),
]
ROUND_SECONDS = 60


class Trivia:
    """The rules. This object has no state: all of it is in the storage."""

    def __init__(self, kv: PluginStorage) -> None:
        self._kv = kv

    async def respond(self, user: str, text: str) -> str | None:
        """Return the response to a message, or None."""
        if text == "!trivia":
            return await self._start()
        if text == "!score":
            return await self._scores()
        return await self._guess(user, text)

    async def _start(self) -> str:
        if (running := await self._kv.get("round")) is not None:
            return f"A round is open already: {running['question']}"
        question, answer = QUESTIONS[(await self._kv.incr("asked") - 1) % len(QUESTIONS)]
        opened = {"question": question, "answer": answer}
        try:
            await self._kv.cas("round", opened, None, ttl=ROUND_SECONDS)
        except ConflictError:  # another process started one
            return await self._start()
        return question

    async def _guess(self, user: str, text: str) -> str | None:
        opened = await self._kv.found("round")
        if opened is None or text.strip().lower() != opened.value["answer"]:
            return None
        try:  # atomic: one user ends the round and scores the point
            _, _, point = await self._kv.batch(
                {"op": "cas", "key": "round", "value": None, "revision": opened.revision},
                {"op": "delete", "key": "round"},
                {"op": "incr", "key": f"score:{user}"},
            )
        except ConflictError:
            return None
        return f"{user} is right, and has {point['value']} now!"

    async def _scores(self) -> str:
        scores = {
            entry.key.removeprefix("score:"): entry.value
            async for entry in self._kv.items("score:")
        }
        table = sorted(scores.items(), key=lambda each: -each[1])
        return ", ".join(f"{user} {points}" for user, points in table) or "Nobody has a point yet."


async def play(connection: Client) -> None:
    """Respond to the chat until the program is stopped."""
    trivia = Trivia(PluginStorage(connection, "trivia"))

    async def on_message(message: Msg) -> None:
        body = json.loads(message.data)
        if (answer := await trivia.respond(body["user"], body["text"])) is not None:
            await connection.publish("chat.out", json.dumps({"text": answer}).encode())

    await connection.subscribe("chat.in", cb=on_message)
    await connection.flush()
    print("trivia plays", flush=True)
    await asyncio.Event().wait()


async def main(url: str) -> None:
    connection = await nats.connect(url)
    try:
        await play(connection)
    finally:
        await connection.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
