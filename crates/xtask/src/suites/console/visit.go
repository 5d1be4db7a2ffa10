// Visits the console by pgx, with PORT, PASSWORD and STATEMENTS, a line each.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	ctx := context.Background()
	where := fmt.Sprintf("host=127.0.0.1 port=%s user=dba password='%s' dbname=backwater", os.Getenv("PORT"), os.Getenv("PASSWORD"))
	connection := must(pgx.Connect(ctx, where))
	ask := func(statement string) []map[string]any {
		rows := must(connection.Query(ctx, statement))
		return must(pgx.CollectRows(rows, pgx.RowToMap))
	}
	for _, statement := range strings.Split(os.Getenv("STATEMENTS"), "\n") {
		must(connection.Exec(ctx, statement))
	}
	for _, rule := range ask("SHOW RULES") {
		fmt.Println(rule["name"], rule["action"], rule["began"])
	}
	for _, user := range ask("SHOW USERS") {
		fmt.Println(user["name"], user["pool"])
	}
	var refused *pgconn.PgError
	if _, err := connection.Exec(ctx, "DROP RESOURCE POOL nowhere"); errors.As(err, &refused) {
		fmt.Println(refused.Code)
	}
	transaction := must(connection.Begin(ctx))
	must(transaction.Exec(ctx, "ALTER RESOURCE POOL rp1 WITH (max_active=3)"))
	must(0, transaction.Commit(ctx))
	for _, pool := range ask("SHOW POOLS") {
		if pool["name"] == "rp1" {
			fmt.Println(pool["max_active"])
		}
	}
	must(0, connection.Close(ctx))
}
