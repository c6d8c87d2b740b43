"""What PostgreSQL lets one open, and what is said when it does not. See also `test_postgres`."""

import asyncio

from keyhouse import open_engine
from keyhouse.errors import UsageError
from tests.engines.openers import postgres_schema
from tests.engines.refusals import refusal


def test_tables_that_are_not_there_are_not_made_unless_told_to() -> None:
    url = asyncio.run(postgres_schema())
    error = refusal(f"{url}&layout=books", create=False)
    assert isinstance(error, UsageError)
    assert error.sentence == "The database has no such tables; make them with: keyhouse tables up URL"
    assert error.fields["tables"] == "books_rows"

    async def made() -> None:
        await (await open_engine(f"{url}&layout=books")).close()
        await (await open_engine(f"{url}&layout=books", create=False)).close()

    asyncio.run(made())
