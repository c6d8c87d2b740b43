"""A trivia game for a chat, as a plugin that keeps all its state in plugin storage: kill it in the midst of a round, start
it again, and the round goes on.

    keyhouse serve rosey                                    # in one terminal: it says where its NATS is
    python examples/trivia.py nats://127.0.0.1:4222         # in another: the game
    nats pub chat.in '{"user": "ann", "text": "!trivia"}'   # or any program that speaks for the chat

It hears `chat.in` (`{"user", "text"}`) and says to `chat.out` (`{"text"}`). Who says `!trivia` begins a round; the first
right answer gets a point; `!score` shows the table.

What it keeps, and why so:

    round           the question that is open, with a TTL: a round that nobody answers ends by itself
    score:<user>    points, by `incr`: two right answers at once are two points
    asked           how many rounds there were, so that questions come in turn
"""

import asyncio
import json
import sys
from contextlib import suppress

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from keyhouse.systems.rosey.client import Conflict, PluginStorage

QUESTIONS = [
    ("What is the largest planet of our solar system?", "jupiter"),
    ("In which year did the first human land on the moon?", "1969"),
    ("Which ocean is the deepest?", "pacific"),
]
ROUND_SECONDS = 60


class Trivia:
    """The rules. All state is in the storage: this object holds none."""

    def __init__(self, kv: PluginStorage) -> None:
        self._kv = kv

    async def heard(self, user: str, text: str) -> str | None:
        """What to say to it; `None`: nothing."""
        if text == "!trivia":
            return await self._begin()
        if text == "!score":
            return await self._scores()
        return await self._guess(user, text)

    async def _begin(self) -> str:
        if (running := await self._kv.get("round")) is not None:
            return f"A round is open already: {running['question']}"
        question, answer = QUESTIONS[(await self._kv.incr("asked") - 1) % len(QUESTIONS)]
        opened = {"question": question, "answer": answer}
        try:
            await self._kv.cas("round", opened, None, ttl=ROUND_SECONDS)
        except Conflict:  # somebody was faster
            return await self._begin()
        return question

    async def _guess(self, user: str, text: str) -> str | None:
        opened = await self._kv.found("round")
        if opened is None or text.strip().lower() != opened.value["answer"]:
            return None
        try:  # the round ends and the point is given together, or not at all; and to one only
            _, _, point = await self._kv.batch(
                {"op": "cas", "key": "round", "value": None, "revision": opened.revision},
                {"op": "delete", "key": "round"},
                {"op": "incr", "key": f"score:{user}"},
            )
        except Conflict:
            return None
        return f"{user} is right, and has {point['value']} now!"

    async def _scores(self) -> str:
        scores = {
            found.key.removeprefix("score:"): found.value
            async for found in self._kv.items("score:")
        }
        table = sorted(scores.items(), key=lambda each: -each[1])
        return ", ".join(f"{user} {points}" for user, points in table) or "Nobody has a point yet."


async def play(connection: Client) -> None:
    """Answer the chat until the connection ends."""
    trivia = Trivia(PluginStorage(connection, "trivia"))

    async def heard(message: Msg) -> None:
        said = json.loads(message.data)
        if (answer := await trivia.heard(said["user"], said["text"])) is not None:
            await connection.publish("chat.out", json.dumps({"text": answer}).encode())

    await connection.subscribe("chat.in", cb=heard)
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
