package outbox

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// defaultSchema is the schema of an Outbox that names none.
const defaultSchema = "jobs"

//go:embed schema.sql
var schema string

// complete is the comment of a table that the whole of schema.sql was run for. It changes with it.
const complete = "github.com/stagedoor/jobs/outbox 1"

// SQL returns the migration, for tools of your own. It may run again on a database that has it, in one transaction.
func (o Outbox) SQL() string { return strings.ReplaceAll(schema, "{schema}", quoted(o.name())) }

// Migrate makes the schema and the tables that are missing. Any number of processes may call it at once, each time they
// start: where all is there it locks nothing. The schema may be there already, and belong to others.
func (o Outbox) Migrate(ctx context.Context, db DB) error {
	if err := checkSchema(o.name()); err != nil {
		return fmt.Errorf("outbox: migrate: %w", err)
	}
	err := o.migrate(ctx, db)
	if err != nil {
		return fmt.Errorf("outbox: migrate: %w", err)
	}
	return nil
}

func (o Outbox) migrate(ctx context.Context, db DB) error {
	var there, done bool
	err := db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
			coalesce(obj_description(to_regclass($2), 'pg_class') = $3, false)`,
		pgx.QueryExecModeExec, o.name(), o.table("outbox"), complete).Scan(&there, &done)
	if err != nil || done {
		return err
	}
	sql := o.SQL()
	if there { // who may not make schemas may not say IF NOT EXISTS either
		sql = strings.Replace(sql, "CREATE SCHEMA IF NOT EXISTS "+quoted(o.name())+";", "", 1)
	}
	_, err = db.Exec(ctx, sql) // one transaction
	return err
}

// checkSchema refuses what PostgreSQL would cut or not take.
func checkSchema(name string) error {
	if len(name) > 63 || !isText(name) {
		return fmt.Errorf("the schema name %q is longer than 63 bytes or no text", name)
	}
	return nil
}

func (o Outbox) name() string { return or(o.Schema, defaultSchema) }

// table is the name of a table as it stands in a statement.
func (o Outbox) table(name string) string { return quoted(o.name()) + "." + name }

// format is table for a statement that is still a format.
func (o Outbox) format(name string) string { return strings.ReplaceAll(o.table(name), "%", "%%") }

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
