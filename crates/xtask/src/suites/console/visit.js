// Visits the console by node-postgres, with PORT, PASSWORD and STATEMENTS, a line each.
const { Client } = require("pg");
const { PORT, PASSWORD, STATEMENTS } = process.env;

async function visit() {
  const client = new Client({ host: "127.0.0.1", port: Number(PORT), user: "dba", password: PASSWORD, database: "backwater" });
  await client.connect();
  // A name makes it prepare the statement, as programs in production do.
  const ask = async (text) => (await client.query({ name: text, text })).rows;
  for (const statement of STATEMENTS.split("\n")) await client.query(statement);
  for (const rule of await ask("SHOW RULES")) console.log(rule.name, rule.action, rule.began);
  for (const user of await ask("SHOW USERS")) console.log(...Object.values(user));
  const refused = await client.query("DROP RESOURCE POOL nowhere").catch((error) => error);
  console.log(refused.code);
  await client.query("BEGIN");
  await client.query("ALTER RESOURCE POOL rp1 WITH (max_active=3)");
  await client.query("COMMIT");
  const pool = (await ask("SHOW POOLS")).find((pool) => pool.name === "rp1");
  console.log(pool.max_active);
  await client.end();
}

visit().catch((error) => {
  console.error(error);
  process.exit(1);
});
