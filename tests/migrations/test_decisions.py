"""The step that stores who paused a tenant finds it out for existing pauses, and mends incomplete rates."""

from __future__ import annotations

import asyncpg

from holdfast.config import Config
from holdfast.store.migrate import migrate

#: Tenant, scope and tenant of the key that paused it (None: no key), and whether the tenant may resume it.
PAUSES = (
    ("own", ("operate", "own"), True),
    ("by-admin", ("admin", "by-admin"), False),
    ("by-another", ("operate", "own"), False),
    ("by-hand", None, False),
)


async def test_who_paused_a_tenant_is_told_by_the_key_that_did(empty_database_url: str) -> None:
    config = Config.load(environment={}, database_url=empty_database_url)
    await migrate(config, up_to=17)
    conn = await asyncpg.connect(empty_database_url, server_settings={"search_path": "holdfast"})
    try:
        for tenant, key, _ in PAUSES:
            async with conn.transaction():
                key_id = key and await conn.fetchval(
                    "insert into api_keys (id, tenant, name, prefix, digest, scopes) values"
                    " (gen_random_uuid(), $2, $2 || '/x', 'p', sha256(random()::text::bytea), array[$1]) returning id",
                    *key,
                )
                for at in ("now() - interval '1 day'", "now()"):  # it was paused before, by its own operators
                    await conn.execute(
                        f"insert into audit_log (at, actor, key_id, tenant, action, subject)"
                        f" values ({at}, $1 || '/x', $2, $1, 'tenant.pause', $1)",
                        tenant, key_id if at == "now()" else None,
                    )  # fmt: skip
                await conn.execute(
                    "insert into controls (kind, name, paused_at, paused_by) values ('tenant', $1, now(), $1 || '/x')",
                    tenant,
                )
        await conn.execute("insert into controls (kind, name, rate_count) values ('queue', 'q', 5)")
        await conn.execute("insert into job_types (name, rate_seconds) values ('work', 5)")
        await migrate(config)
        rows = await conn.fetch("select name, paused_tenant, paused_public from controls where kind = 'tenant'")
        assert {row["name"]: row["paused_tenant"] for row in rows} == {
            tenant: tenant if own else None for tenant, _, own in PAUSES
        }
        assert not any(row["paused_public"] for row in rows)
        assert await conn.fetchval("select rate_count from controls where kind = 'queue'") is None
        assert await conn.fetchval("select rate_seconds from job_types") is None
    finally:
        await conn.close()
