"""Every statement that the engine sends, built once per layout. `sql.postgres` has the functions.

Every statement finds its rows by an index; session settings keep the planner from anything else
(see `server`). Values read together with rows come as the first row of the result, because one
statement is one snapshot.
"""

from typing import NamedTuple

from keyhouse.engines.sql.layout import Layout, in_quotes
from keyhouse.engines.sql.postgres import (
    commit_name,
    head,
    live,
    milliseconds_of,
    quoted_text,
    sweep_name,
    time_of,
)

COMMIT_ARGUMENTS = 22


class Statements(NamedTuple):
    """Statements by purpose; the comments list their parameters in order."""

    commit: str  # see `sql.postgres.commit_function`
    sweep: str  # now, limit
    read: str  # spaces, keys, now
    scans: dict[
        tuple[bool, bool, bool], str
    ]  # by (reverse, keys_only, bounded): space, start, now, limit, stop
    spaces: str  # after, now, limit
    head: str  # space
    heads: str  # spaces
    window: str  # space, after, commits, bytes
    channel: str
    notify: str  # payload
    newest: str
    prune: str  # last id, limit
    forget: str  # forgotten, limit
    erase: tuple[str, ...]  # rows: space, limit, kept; others: space, limit
    vacuum: tuple[str, ...]


def statements(layout: Layout) -> Statements:
    n = in_quotes(layout)
    arguments = ", ".join(f"${number}" for number in range(1, COMMIT_ARGUMENTS + 1))
    return Statements(
        commit=f"""SELECT answers, busy, fault_batch, fault_key, fault_kind
            FROM {commit_name(layout)}({arguments})""",
        sweep=f"SELECT seen, gone, spaces FROM {sweep_name(layout)}($1, $2)",
        read=f"""SELECT x.at, r.{n.value}, r.{n.revision}, {_expires(layout, n)}
            FROM unnest($1::text[], $2::text[]) WITH ORDINALITY x(space, key, at)
            JOIN {n.rows} r ON r.{n.space} = x.space AND r.{n.key} = x.key
            WHERE {live(layout, "r", time_of(layout, "$3::bigint"))}""",
        scans={
            (reverse, keys_only, bounded): _scan(layout, n, reverse, keys_only, bounded)
            for reverse in (False, True)
            for keys_only in (False, True)
            for bounded in (False, True)
        },
        spaces=_spaces(layout, n),
        head=f"SELECT {head(layout, '$1')}",
        heads=f"SELECT x.space, {head(layout, 'x.space')} FROM unnest($1::text[]) x(space)",
        window=_window(layout, n),
        channel=f"SELECT {_channel(n)}",
        notify=f"""SELECT set_config('synchronous_commit', 'off', true),
            pg_notify({_channel(n)}, $1)""",
        newest=f"SELECT coalesce(max(id), 0) FROM {n.changes}",
        prune=f"""WITH old AS (
                SELECT c.id FROM {n.changes} c
                WHERE c.id <= $1::bigint
                ORDER BY c.id LIMIT $2 FOR UPDATE SKIP LOCKED
            ), gone AS (
                DELETE FROM {n.changes} c USING old WHERE c.id = old.id
                RETURNING c.space, c.revision
            ), kept AS (
                INSERT INTO {n.pruned} AS p (space, revision)
                SELECT g.space, max(g.revision) FROM gone g GROUP BY g.space ORDER BY g.space
                ON CONFLICT (space) DO UPDATE SET revision = greatest(p.revision, excluded.revision)
            )
            SELECT count(*) FROM gone""",
        forget=f"""WITH old AS (
                SELECT a.space, a.id FROM {n.applied} a WHERE a.at <= $1
                ORDER BY a.at LIMIT $2 FOR UPDATE SKIP LOCKED
            ), gone AS (
                DELETE FROM {n.applied} a USING old
                WHERE a.space = old.space AND a.id = old.id RETURNING 1
            )
            SELECT count(*) FROM gone""",
        erase=_erase(n),
        vacuum=tuple(f"VACUUM {name}" for name in (n.rows, n.applied, n.changes, n.pruned)),
    )


def _erase(n: Layout) -> tuple[str, ...]:
    """Return the statements that delete a space from each table: all rows but one first."""
    wheres = {
        n.rows: f"{n.space} = $1 AND {n.key} IS DISTINCT FROM $3::text",
        **dict.fromkeys((n.applied, n.changes, n.pruned), "space = $1"),
    }
    return tuple(
        f"""WITH gone AS (
                DELETE FROM {table} WHERE ctid = ANY (ARRAY(
                    SELECT ctid FROM {table} WHERE {where} LIMIT $2)) RETURNING 1
            ) SELECT count(*) FROM gone"""
        for table, where in wheres.items()
    )


def _channel(n: Layout) -> str:
    """Return a table's channel, by oid: other schemas may have a table of the same name."""
    return f"'keyhouse_' || {quoted_text(n.rows)}::regclass::oid"


def _expires(layout: Layout, n: Layout) -> str:
    return milliseconds_of(layout, f"r.{n.expires}")


def _scan(layout: Layout, n: Layout, reverse: bool, keys_only: bool, bounded: bool) -> str:
    value = "''" if keys_only else f"r.{n.value}"
    return f"""SELECT NULL AS key, NULL AS value, {head(layout, "$1")} AS revision,
            NULL::bigint AS expires
        UNION ALL (SELECT r.{n.key}, {value}, r.{n.revision}, {_expires(layout, n)} FROM {n.rows} r
            WHERE r.{n.space} = $1 AND r.{n.key} >= $2 {f"AND r.{n.key} < $5" if bounded else ""}
            AND {live(layout, "r", time_of(layout, "$3::bigint"))}
            ORDER BY r.{n.key} {"DESC" if reverse else "ASC"} LIMIT $4)"""


def _spaces(layout: Layout, n: Layout) -> str:
    """List spaces with a live row by a loose index scan: rows in between are not read."""

    def after(space: str) -> str:
        return f"""(SELECT r.{n.space} FROM {n.rows} r WHERE r.{n.space} > {space}
            AND {live(layout, "r", time_of(layout, "$2::bigint"))}
            ORDER BY r.{n.space}, r.{n.key} LIMIT 1)"""

    return f"""WITH RECURSIVE found(space) AS (
            SELECT {after("$1")}
            UNION ALL SELECT {after("f.space")} FROM found f WHERE f.space IS NOT NULL
        ) SELECT space FROM found WHERE space IS NOT NULL LIMIT $3"""


def _window(layout: Layout, n: Layout) -> str:
    """Return the next commits of a space and the keys that they changed and no later commit did.

    The first row holds the pruned revision, the last revision of the page and the number of
    changes. The page has at least one whole commit, and more while it stays within the byte limit.
    """
    return f"""WITH log AS MATERIALIZED (
            SELECT c.revision, c.keys::json AS keys FROM {n.changes} c
            WHERE c.space = $1 AND c.revision > $2
            ORDER BY c.revision LIMIT $3
        ), found AS MATERIALIZED (
            SELECT log.revision, m.key, r.{n.value} AS value, {_expires(layout, n)} AS expires,
                sum(octet_length(m.key) + coalesce(octet_length(r.{n.value}), 0))
                    OVER (ORDER BY log.revision) AS bytes
            FROM log CROSS JOIN LATERAL (
                SELECT key, false AS deleted FROM json_array_elements_text(log.keys -> 0) key
                UNION ALL SELECT key, true FROM json_array_elements_text(log.keys -> 1) key
            ) m LEFT JOIN {n.rows} r ON r.{n.space} = $1 AND r.{n.key} = m.key
            WHERE r.{n.revision} = log.revision OR (m.deleted AND r.{n.key} IS NULL)
        )
        SELECT (SELECT p.revision FROM {n.pruned} p WHERE p.space = $1) AS revision,
            NULL AS key, NULL AS value,
            (SELECT max(revision) FROM log) AS expires, (SELECT count(*) FROM found) AS changes
        UNION ALL (SELECT revision, key, value, expires, NULL FROM found
            WHERE bytes <= $4 OR revision = (SELECT min(revision) FROM found) ORDER BY revision)"""
