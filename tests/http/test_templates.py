"""Pages that may be long are rendered in steps."""

import asyncio
from pathlib import Path

from keyhouse.http import Templates
from tests.support.event_loop_turns import turns_during

LONG = "{% for n in numbers %}<p>{{ n }} {{ n * 2 }} {{ '<' }}</p>{% endfor %}"


def test_a_long_page_is_rendered_in_steps_between_which_other_requests_run(tmp_path: Path) -> None:
    """A playlist of 1,000 books held up all others for 60 ms, each time that it was loaded."""
    (tmp_path / "long.html").write_text(LONG)
    templates = Templates(tmp_path)
    numbers = list(range(30_000))

    async def run() -> None:
        pages, turns = await turns_during(
            asyncio.gather(
                *(templates.page_in_steps("long.html", numbers=numbers) for _ in range(3))
            )
        )
        assert turns > 10
        assert {page.html for page in pages} == {templates.page("long.html", numbers=numbers).html}

    asyncio.run(run())
