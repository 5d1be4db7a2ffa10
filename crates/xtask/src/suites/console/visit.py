"""Visits the console by psycopg2 or asyncpg: python3 visit.py DRIVER, with PORT, PASSWORD and STATEMENTS, a line each."""

import asyncio
import os
import sys

WHERE = dict(host="127.0.0.1", port=int(os.environ["PORT"]), user="dba", password=os.environ["PASSWORD"])
STATEMENTS = os.environ["STATEMENTS"].splitlines()
CHANGE = "ALTER RESOURCE POOL rp1 WITH (max_active=3)"


def shown(rules, users, code, pools):
    print(*[f"{rule['name']} {rule['action']} {rule['began']}" for rule in rules], sep="\n")
    print(*[" ".join(user.values()) for user in users], sep="\n")
    print(code)
    print(*[pool["max_active"] for pool in pools if pool["name"] == "rp1"])


def psycopg2_visits():
    import psycopg2
    import psycopg2.extras

    connection = psycopg2.connect(dbname="backwater", **WHERE)
    connection.autocommit = True

    def ask(statement):
        with connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else None

    for statement in STATEMENTS:
        ask(statement)
    rules, users = ask("SHOW RULES"), ask("SHOW USERS")
    try:
        code = ask("DROP RESOURCE POOL nowhere")
    except psycopg2.Error as error:
        code = error.pgcode
    connection.autocommit = False
    ask(CHANGE)
    connection.commit()
    shown(rules, users, code, ask("SHOW POOLS"))
    connection.close()


async def asyncpg_visits():
    import asyncpg

    connection = await asyncpg.connect(database="backwater", **WHERE)

    async def ask(statement):
        return [dict(row) for row in await connection.fetch(statement)]

    for statement in STATEMENTS:
        await connection.execute(statement)
    rules, users = await ask("SHOW RULES"), await ask("SHOW USERS")
    try:
        code = await ask("DROP RESOURCE POOL nowhere")
    except asyncpg.PostgresError as error:
        code = error.sqlstate
    async with connection.transaction():
        await connection.execute(CHANGE)
    shown(rules, users, code, await ask("SHOW POOLS"))
    await connection.close()


if sys.argv[1] == "psycopg2":
    psycopg2_visits()
else:
    asyncio.run(asyncpg_visits())
