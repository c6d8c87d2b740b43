"""The revisions up to which logs may be pruned, by what all spaces together have written since.

No number counts the commits of all spaces: a counter would be written by all of them. So the sweep,
which walks through the heads of the spaces, adds them up:

| walk  | remembers                                      | then                                  |
|-------|------------------------------------------------|---------------------------------------|
| first | the head of each space: the next floors        |                                       |
| next  | the sum of all heads, and the time             | what is committed from here on counts |
| later | nothing, until the sum has grown by `changes`  | the next floors are the floors, and   |
|       | and `seconds` have passed                      | it is a first walk                    |

Memory holds a number for each space with changes. A process that has just started prunes only what
one space alone has written since.
"""

from keyhouse.engines.dynamodb.log import Head
from keyhouse.engines.retention import ChangesKept


class Trimming:
    def __init__(self, kept: ChangesKept) -> None:
        self._kept = kept
        self._floors: dict[str, int] = {}
        self._next: dict[str, int] | None = None
        self._started: tuple[int, int] | None = None
        self._heads: dict[str, int] = {}
        self._sum = 0

    def floor(self, space: str, head: Head) -> int:
        """Note the head of a space; return the revision up to which its log may be pruned.

        The newest entry stays: it tells readers the newest revision.
        """
        self._sum += head.revision
        if head.revision - 1 > head.pruned:
            self._heads[space] = head.revision
        alone = 0 if self._kept.seconds else head.revision - self._kept.changes
        return min(head.revision - 1, max(alone, self._floors.get(space, 0)))

    def finish_walk(self, now: int) -> None:
        heads, total = self._heads, self._sum
        self._heads, self._sum = {}, 0
        if self._next is None:
            self._next = heads
        elif self._started is None:
            self._started = (total, now)
        else:
            before, at = self._started
            if total - before >= self._kept.changes and now - at >= self._kept.seconds * 1_000:
                self._floors, self._next, self._started = self._next, heads, None
