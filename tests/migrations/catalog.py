"""A schema as the system catalogs list it, for comparison."""

from __future__ import annotations

from collections.abc import Collection

import asyncpg

_LISTINGS = {
    "columns": """
        select c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull
          || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || a.attidentity::text
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'v')""",
    "relations": """
        select relname || ' ' || relkind::text || ' ' || relowner::regrole::text || ' '
          || coalesce(relacl::text, '') || ' ' || coalesce(reloptions::text, '')
        from pg_class where relnamespace = $1::regnamespace""",
    "indexes": "select indexdef from pg_indexes where schemaname = $1",
    "constraints": """
        select c.relname || ' ' || conname || ' ' || pg_get_constraintdef(k.oid)
        from pg_constraint k join pg_class c on c.oid = conrelid
        where connamespace = $1::regnamespace and contype <> 'n'""",
    "triggers": """
        select pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
        from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = $1::regnamespace and not t.tgisinternal""",
    "functions": """
        select pg_get_functiondef(oid) || ' ' || proowner::regrole::text || ' ' || coalesce((
          select string_agg(acl::text, ',' order by acl::text) from unnest(proacl) as acl), '')
        from pg_proc where pronamespace = $1::regnamespace""",
    "views": "select viewname || ' ' || definition from pg_views where schemaname = $1",
    "schema": """
        select nspname || ' ' || nspowner::regrole::text || ' ' || coalesce((
          select string_agg(acl::text, ',' order by acl::text) from unnest(nspacl) as acl), '')
        from pg_namespace where nspname = $1""",
    "settings": 'select t::text from "{schema}".settings t',
    "steps": "select step || ' ' || name || ' ' || release from \"{schema}\".schema_steps",
    "checksums": "select name || ' ' || checksum || ' ' || release from \"{schema}\".schema_functions",
}


async def listing(
    url: str, schema: str = "holdfast", kinds: Collection[str] = _LISTINGS.keys()
) -> dict[str, list[str]]:
    """Everything in a schema, or some of it, by kind."""
    conn = await asyncpg.connect(url, server_settings={"search_path": "pg_catalog"})
    try:
        found: dict[str, list[str]] = {}
        for kind in kinds:
            text = _LISTINGS[kind].replace("{schema}", schema)
            rows = await conn.fetch(text, *([schema] if "$1" in text else []))
            found[kind] = sorted(row[0] for row in rows)
        return found
    finally:
        await conn.close()
