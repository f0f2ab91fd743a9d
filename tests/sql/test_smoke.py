import os
async def test_a(conn, config, connect_as):
    assert await conn.fetchval("select count(*) from jobs") == 0
    api = await connect_as("api")
    print(await api.fetch("select * from enqueue('x')"))
    assert not [k for k in os.environ if k.startswith("HOLDFAST")]
async def test_b(conn): pass
async def test_c(conn): pass
