"""The PostgreSQL functions that commit and sweep, installed by the migrations, and SQL fragments.

**A call is one round trip and one transaction**, for a group of batches of any spaces:

- First it locks the spaces with transaction-level advisory locks. A call for several spaces does
  not wait for a lock held by another process: it skips that space's batches and reports them as
  busy, and the engine sends them again in a separate call, which waits. So no transaction waits
  while it holds a lock, which rules out deadlocks, and no space waits for another. Row locks are
  taken only under these locks.
- Every later statement sees everything committed before the lock was acquired, because each
  statement of a function in a READ COMMITTED transaction takes its own snapshot. A check never
  reads an older state than the write beside it.
- A space's next revision is one more than its newest, found in the log of changes (or in `pruned`,
  when the log has been pruned past it). The lock is released after the commit is visible, so the
  revisions of a space become visible in order, and a reader that has seen one has missed none
  before it. A sequence guarantees neither, and a restore could reset it.
- The engine puts batches that write keys of another batch in the group into a later *wave*. Within
  a wave, a handful of statements serve all batches at once.

Nothing reads the server's time: `now` is the engine's clock.
"""

import msgspec

from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.errors import UsageError
from keyhouse.limits import COUNTER_MAX, EXPIRES_MAX

NOT_A_COUNTER, OUT_OF_BOUNDS, PASSES_BOUNDS = 1, 2, 3
"""Reasons why a batch is rejected."""

NAME_BYTES_MAX = 63
"""PostgreSQL's limit; with the longest suffix, a layout's name may have 50 bytes."""

_SQLITE_ONLY = ("large_values", "documents")

FOREIGN_LOCK_MILLISECONDS = 50
"""Time that a sweep waits for a row locked by another program."""


def commit_name(layout: Layout) -> str:
    return quoted(f"{layout.rows}_commit")


def sweep_name(layout: Layout) -> str:
    return quoted(f"{layout.rows}_sweep")


def check_names(layout: Layout) -> None:
    """Raise for names that PostgreSQL would silently truncate: two of them could become one."""
    own = {
        name
        for field, name in msgspec.structs.asdict(layout).items()
        if isinstance(name, str) and field not in _SQLITE_ONLY
    }
    own |= {
        f"{layout.rows}_commit",
        f"{layout.rows}_sweep",
        f"{layout.changes}_id",
        f"{layout.applied}_at",
    }
    for name in sorted(own):
        if len(name.encode(errors="surrogatepass")) > NAME_BYTES_MAX or "\0" in name:
            raise UsageError(
                "A name of the layout is invalid in PostgreSQL; use a shorter one, without U+0000.",
                name=name,
                limit=NAME_BYTES_MAX,
            )


def time_of(layout: Layout, milliseconds: str) -> str:
    """Return the SQL that converts milliseconds to the column type."""
    if not layout.timestamps:
        return milliseconds
    return (
        f"to_timestamp(CASE WHEN {milliseconds} > {EXPIRES_MAX} THEN {EXPIRES_MAX}"
        f" ELSE {milliseconds} END / 1000.0)"
    )


def milliseconds_of(layout: Layout, column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000)::bigint" if layout.timestamps else column


def live(layout: Layout, row: str, moment: str) -> str:
    """Return the SQL condition that a row has not expired at a moment, given in the column type."""
    expires = f"{row}.{quoted(layout.expires)}"
    return f"({expires} IS NULL OR {expires} > {moment})"


def head(layout: Layout, space: str) -> str:
    """Return the SQL of a space's newest revision; 0 before its first commit."""
    changes, pruned = quoted(layout.changes), quoted(layout.pruned)
    return f"""coalesce((SELECT max(c.revision) FROM {changes} c WHERE c.space = {space}),
            (SELECT p.revision FROM {pruned} p WHERE p.space = {space}), 0)"""


def _lock(layout: Layout, space: str) -> str:
    """Return the SQL of a space's advisory lock number, which also depends on the table."""
    return f"hashtextextended({space}, {quoted_text(quoted(layout.rows))}::regclass::oid::bigint)"


def _moment(layout: Layout) -> str:
    """Return the declaration of `moment`: `now` in the column type."""
    column_type = "timestamptz" if layout.timestamps else "bigint"
    return f"moment CONSTANT {column_type} := {time_of(layout, 'now')}"


def quoted_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _upsert(layout: Layout, source: str) -> str:
    """Return the upsert of `source`: space, key, value, revision, expires (in milliseconds)."""
    rows, space, key = quoted(layout.rows), quoted(layout.space), quoted(layout.key)
    value, revision, expires = quoted(layout.value), quoted(layout.revision), quoted(layout.expires)
    columns = [space, key, value, revision, expires]
    values = ["s.space", "s.key", "s.value", "s.revision", time_of(layout, "s.expires")]
    changed = [f"{name} = excluded.{name}" for name in (value, revision, expires)]
    if layout.created is not None:
        columns.append(created := quoted(layout.created))
        values.append("moment")
        changed.append(
            f"{created} = CASE WHEN t.{expires} <= moment"
            f" THEN excluded.{created} ELSE t.{created} END"
        )
    if layout.updated is not None:
        columns.append(updated := quoted(layout.updated))
        values.append("moment")
        changed.append(f"{updated} = excluded.{updated}")
    return f"""INSERT INTO {rows} AS t ({", ".join(columns)})
        SELECT {", ".join(values)}
        FROM ({source}) s ON CONFLICT ({space}, {key}) DO UPDATE SET
        {", ".join(changed)}"""


def _written(arrays: str) -> str:
    """Return the source of an upsert: the rows of these arrays whose batch has a revision."""
    return f"""SELECT b_space[x.batch] AS space, x.key, x.value,
                revisions[x.batch] AS revision, x.expires
                FROM unnest({arrays}) x(batch, key, value, expires)
                WHERE revisions[x.batch] > 0"""


def commit_function(layout: Layout) -> str:
    """Return the DDL of the commit function.

    Batches and spaces are numbered from 1. An answer is the revision, or NULL when a check failed.
    `busy` lists the spaces that were skipped, which happens only if `patient` is false. `fault_*`
    describe the rejected batches. Argument prefixes: b batches, c checks, p puts, d deletes,
    a adds. A check of 0 requires absence.
    """
    rows, changes, applied = quoted(layout.rows), quoted(layout.changes), quoted(layout.applied)
    space, key, value = quoted(layout.space), quoted(layout.key), quoted(layout.value)
    revision = quoted(layout.revision)
    expires = milliseconds_of(layout, f"r.{quoted(layout.expires)}")
    return f"""CREATE FUNCTION {commit_name(layout)}(
    patient boolean, now bigint, forgotten bigint, waves int, spaces text[],
    b_at int[], b_space text[], b_wave int[], b_id text[], b_keys text[],
    c_batch int[], c_key text[], c_revision bigint[],
    p_batch int[], p_key text[], p_value text[], p_expires bigint[],
    d_batch int[], d_key text[],
    a_batch int[], a_key text[], a_by text[],
    OUT answers bigint[], OUT busy int[],
    OUT fault_batch int[], OUT fault_key text[], OUT fault_kind int[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    {_moment(layout)};
    heads bigint[];        -- by space
    revisions bigint[];    -- by batch: its revision in this wave; 0 if it writes nothing
    gone int[];            -- the batches of this wave that are settled
    batch int;
    number bigint;
    sums record;
BEGIN
    IF patient THEN
        PERFORM pg_advisory_xact_lock({_lock(layout, "x.space")}) FROM unnest(spaces) x(space);
    ELSE
        SELECT array_agg(x.at) INTO busy FROM unnest(spaces) WITH ORDINALITY x(space, at)
            WHERE NOT pg_try_advisory_xact_lock({_lock(layout, "x.space")});
        IF busy IS NOT NULL THEN
            SELECT array_agg(CASE WHEN x.at = ANY (busy) THEN 0 ELSE x.wave END ORDER BY x.batch)
                INTO b_wave FROM unnest(b_at, b_wave) WITH ORDINALITY x(at, wave, batch);
        END IF;
    END IF;
    SELECT array_agg({head(layout, "x.space")} ORDER BY x.at) INTO heads
        FROM unnest(spaces) WITH ORDINALITY x(space, at);
    answers := array_fill(NULL::bigint, ARRAY[cardinality(b_at)]);
    FOR wave IN 1 .. waves LOOP
        gone := ARRAY[]::int[];
        IF b_id IS NOT NULL THEN
            FOR batch, number IN SELECT x.batch, a.revision
                FROM unnest(b_space, b_id, b_wave) WITH ORDINALITY x(space, id, of_wave, batch)
                JOIN {applied} a ON a.space = x.space AND a.id = x.id AND a.at > forgotten
                WHERE x.of_wave = wave
            LOOP
                answers[batch] := number;
                gone := gone || batch;
            END LOOP;
        END IF;
        IF cardinality(c_batch) > 0 THEN
            gone := gone || ARRAY(SELECT x.batch
                FROM unnest(c_batch, c_key, c_revision) x(batch, key, revision)
                LEFT JOIN {rows} r ON r.{space} = b_space[x.batch] AND r.{key} = x.key
                    AND {live(layout, "r", "moment")}
                WHERE b_wave[x.batch] = wave AND coalesce(r.{revision}, 0) <> x.revision);
        END IF;
        IF cardinality(a_batch) > 0 THEN
            SELECT array_agg(x.batch) AS batch, array_agg(x.key) AS key,
                array_agg(x.total::text) AS value, array_agg(x.expires) AS expires,
                array_agg(CASE WHEN NOT x.counter THEN {NOT_A_COUNTER}
                    WHEN x.total IS NULL THEN {OUT_OF_BOUNDS}
                    WHEN abs(x.total) > {COUNTER_MAX} THEN {PASSES_BOUNDS} ELSE 0 END) AS fault
            INTO sums FROM (
                SELECT x.batch, x.key, {expires} AS expires,
                    coalesce(r.{value} ~ '^-?(0|[1-9][0-9]*)$', true) AS counter,
                    CASE WHEN r.{value} IS NULL THEN x.by::numeric
                        WHEN length(r.{value}) <= {len(str(COUNTER_MAX)) + 1}
                            AND r.{value} ~ '^-?(0|[1-9][0-9]*)$'
                        THEN r.{value}::numeric + x.by::numeric END AS total
                FROM unnest(a_batch, a_key, a_by) x(batch, key, by)
                LEFT JOIN {rows} r ON r.{space} = b_space[x.batch] AND r.{key} = x.key
                    AND {live(layout, "r", "moment")}
                WHERE b_wave[x.batch] = wave AND x.batch <> ALL (gone)) x;
            SELECT gone || coalesce(array_agg(x.batch), ARRAY[]::int[]),
                fault_batch || array_agg(x.batch), fault_key || array_agg(x.key),
                fault_kind || array_agg(x.fault)
            INTO gone, fault_batch, fault_key, fault_kind
            FROM unnest(sums.batch, sums.key, sums.fault) x(batch, key, fault) WHERE x.fault > 0;
        END IF;
        revisions := array_fill(0::bigint, ARRAY[cardinality(b_at)]);
        FOR batch IN 1 .. cardinality(b_at) LOOP
            IF b_wave[batch] = wave AND batch <> ALL (gone) THEN
                number := heads[b_at[batch]];
                IF b_keys[batch] IS NOT NULL THEN
                    number := number + 1;
                    heads[b_at[batch]] := number;
                    revisions[batch] := number;
                END IF;
                answers[batch] := number;
            END IF;
        END LOOP;
        INSERT INTO {changes} (space, revision, keys) SELECT x.space, revisions[x.batch], x.keys
            FROM unnest(b_space, b_keys) WITH ORDINALITY x(space, keys, batch)
            WHERE revisions[x.batch] > 0 ORDER BY x.batch;
        IF cardinality(p_batch) > 0 THEN
            {_upsert(layout, _written("p_batch, p_key, p_value, p_expires"))};
        END IF;
        IF cardinality(a_batch) > 0 THEN
            {_upsert(layout, _written("sums.batch, sums.key, sums.value, sums.expires"))};
        END IF;
        IF cardinality(d_batch) > 0 THEN
            DELETE FROM {rows} r USING unnest(d_batch, d_key) x(batch, key)
                WHERE revisions[x.batch] > 0 AND r.{space} = b_space[x.batch] AND r.{key} = x.key;
        END IF;
        IF b_id IS NOT NULL THEN
            INSERT INTO {applied} (space, id, revision, at)
                SELECT x.space, x.id, revisions[x.batch], now
                FROM unnest(b_space, b_id) WITH ORDINALITY x(space, id, batch)
                WHERE x.id IS NOT NULL AND revisions[x.batch] > 0
                ON CONFLICT (space, id)
                DO UPDATE SET revision = excluded.revision, at = excluded.at;
        END IF;
    END LOOP;
END $$"""


def sweep_function(layout: Layout) -> str:
    """Return the DDL of the sweep function: it deletes up to `most` expired rows.

    The deletes are one change of each space, and `spaces` names these. Spaces that another call has
    locked are left to the next sweep; only if all are locked, it waits for one. Under a space's
    lock no engine writes its rows, so the rows that were selected are deleted without selecting
    them again. Another program may lock or change one: then the delete is rolled back, and the
    remaining rows are selected again, each locked. The log entry of the common case, one space, is
    built before the lock is taken. `seen` counts the selected rows: fewer than `most` means that no
    more have expired.
    """
    rows, space, key, expires = (
        quoted(name) for name in (layout.rows, layout.space, layout.key, layout.expires)
    )
    still = f"r.ctid = ANY (places) AND r.{expires} <= moment AND r.{space} = ANY (spaces)"
    changes = quoted(layout.changes)
    found = f"SELECT r.ctid AS place, r.{space} AS owner, r.{key} AS name FROM {rows} r"
    collected = (
        "SELECT array_agg(d.place), array_agg(d.owner), array_agg(d.name)"
        " INTO places, owners, names FROM"
    )
    return f"""CREATE FUNCTION {sweep_name(layout)}(
    now bigint, most int, OUT seen int, OUT gone int, OUT spaces text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    {_moment(layout)};
    candidates text[];
    places tid[];
    owners text[];
    names text[];
    entry text;
BEGIN
    {collected} ({found} WHERE r.{expires} <= moment ORDER BY r.{expires} LIMIT most) d;
    seen := coalesce(cardinality(places), 0);
    gone := 0;
    IF seen = 0 THEN
        RETURN;
    END IF;
    IF owners[1] = ALL (owners) THEN
        candidates := owners[1:1];
        entry := '[[],' || array_to_json(names) || ']';
    ELSE
        candidates := ARRAY(SELECT DISTINCT x.space FROM unnest(owners) x(space));
    END IF;
    SELECT array_agg(x.space) INTO spaces FROM unnest(candidates) x(space)
        WHERE pg_try_advisory_xact_lock({_lock(layout, "x.space")});
    IF spaces IS NULL THEN
        spaces := candidates[1:1];
        PERFORM pg_advisory_xact_lock({_lock(layout, "candidates[1]")});
    END IF;
    PERFORM set_config('lock_timeout', '{FOREIGN_LOCK_MILLISECONDS}ms', true);
    WHILE places IS NOT NULL LOOP
        BEGIN
            DELETE FROM {rows} r WHERE {still};
            GET DIAGNOSTICS gone = ROW_COUNT;
            IF entry IS NOT NULL AND gone = seen THEN
                INSERT INTO {changes} (space, revision, keys)
                    SELECT x.space, {head(layout, "x.space")} + 1, entry
                    FROM unnest(spaces) x(space);
                RETURN;
            END IF;
            IF gone <> (SELECT count(*) FROM unnest(owners) x(space) WHERE x.space = ANY (spaces))
            THEN
                RAISE lock_not_available;
            END IF;
            INSERT INTO {changes} (space, revision, keys)
                SELECT x.space, {head(layout, "x.space")} + 1,
                    '[[],' || array_to_json(array_agg(x.name)) || ']'
                FROM unnest(owners, names) x(space, name) WHERE x.space = ANY (spaces)
                GROUP BY x.space ORDER BY x.space;
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            gone := 0;
            entry := NULL;
            {collected} ({found} WHERE {still} FOR UPDATE SKIP LOCKED) d;
        END;
    END LOOP;
END $$"""
