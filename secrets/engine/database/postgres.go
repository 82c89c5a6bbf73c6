package database

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/record"
)

// postgres is the plug-in for PostgreSQL.
type postgres struct{}

const pgPassword = `ALTER ROLE "{{username}}" WITH PASSWORD '{{password}}'`

func (postgres) params(cfg *config) record.Params {
	return record.Params{{Name: "connection_url", At: &cfg.URL}, {Name: "username", At: &cfg.User},
		{Name: "max_open_connections", At: &cfg.Open},
		{Name: "max_idle_connections", At: &cfg.Idle}, {Name: "max_connection_lifetime", At: &cfg.Lifetime},
		{Name: "password_authentication", At: &cfg.Auth},
		{Name: "disable_escaping", At: &cfg.Raw}, {Name: "username_template", At: &cfg.Template},
		{Name: "tls_ca", At: &cfg.TLSCA}, {Name: "tls_certificate", At: &cfg.TLSCert}}
}

func (postgres) longest() int { return nameBytes }

func (postgres) check(cfg *config) error {
	switch {
	case cfg.URL == "":
		return invalid("connection_url cannot be empty")
	case cfg.Auth != "password" && cfg.Auth != "scram-sha-256":
		return invalid("field \"password_authentication\": must be password or scram-sha-256")
	}
	_, err := cfg.connection(cfg.Password)
	return err
}

func (postgres) rotates(cfg *config) bool { return strings.Contains(cfg.URL, "{{password}}") }

func (postgres) connect(ctx context.Context, cfg *config, password string) (s session, again bool, err error) {
	pc, err := cfg.connection(password)
	if err != nil {
		return nil, false, err
	}
	conn, err := pgx.ConnectConfig(ctx, pc)
	if err == nil {
		return &pgSession{conn}, false, nil
	}
	var refused *pgconn.PgError
	return nil, errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28"), err
}

// judged gives an error its kind, without what may show a password.
func (postgres) judged(name string, err error) error {
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && (strings.HasPrefix(refused.Code, "57") || strings.HasPrefix(refused.Code, "53")):
		return errkind.Errorf(errkind.Unavailable, "the database %s: %s", name, refused.Message)
	case errors.As(err, &refused):
		return errkind.Errorf(errkind.Invalid, "the database %s refused (SQLSTATE %s): %s", name, refused.Code,
			refused.Message)
	case errkind.Of(err) != errkind.Internal:
		return err
	}
	return errkind.Errorf(errkind.Unavailable, "the database %s cannot be reached", name)
}

// pgSession is one connection.
type pgSession struct{ conn *pgx.Conn }

func (l *pgSession) ping(ctx context.Context) error  { return l.conn.Ping(ctx) }
func (l *pgSession) close(ctx context.Context) error { return l.conn.Close(ctx) }
func (l *pgSession) clean() bool                     { return !l.conn.IsClosed() && l.conn.PgConn().TxStatus() == 'I' }

func (l *pgSession) create(ctx context.Context, how []string, v values) error {
	return l.run(ctx, how, v)
}

func (l *pgSession) renew(ctx context.Context, how []string, v values) error {
	if len(how) == 0 {
		how = []string{`ALTER ROLE "{{name}}" VALID UNTIL '{{expiration}}'`}
	}
	return l.run(ctx, how, v)
}

func (l *pgSession) setPassword(ctx context.Context, how []string, v values) error {
	if len(how) == 0 {
		how = []string{pgPassword}
	}
	return l.run(ctx, how, v)
}

func (l *pgSession) end(ctx context.Context, how []string, v values) error {
	exists, err := l.exists(ctx, v.user)
	if err != nil || !exists {
		return err
	}
	if len(how) > 0 {
		return l.run(ctx, how, v)
	}
	return l.drop(ctx, v.user)
}

// run executes statements as one transaction.
func (l *pgSession) run(ctx context.Context, list []string, v values) error {
	tx, err := l.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit there is nothing to take back
	for _, one := range list {
		text, err := v.expand(one)
		if err != nil {
			return err
		}
		if _, err := l.conn.PgConn().Exec(ctx, text).ReadAll(); err != nil {
			return silent(v, err)
		}
	}
	return tx.Commit(ctx)
}

// silent takes the password out of an error.
func silent(v values, err error) error {
	var refused *pgconn.PgError
	if v.password != "" && errors.As(err, &refused) && strings.Contains(refused.Message, v.password) {
		own := *refused
		own.Message = strings.ReplaceAll(own.Message, v.password, "*****")
		return &own
	}
	return err
}

func (l *pgSession) exists(ctx context.Context, user string) (is bool, err error) {
	err = l.conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", user).Scan(&is)
	return is, err
}

// drop takes back what the role was given in this database, and drops it.
func (l *pgSession) drop(ctx context.Context, user string) error {
	tx, err := l.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit there is nothing to take back
	rows, err := tx.Query(ctx, "SELECT DISTINCT table_schema FROM information_schema.role_table_grants WHERE grantee = "+
		"$1 UNION SELECT 'public'", user)
	if err != nil {
		return err
	}
	schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	who := pgx.Identifier{user}.Sanitize()
	var list []string
	for _, s := range schemas {
		in := pgx.Identifier{s}.Sanitize()
		for _, what := range []string{"TABLES", "SEQUENCES", "FUNCTIONS"} {
			list = append(list, fmt.Sprintf("REVOKE ALL PRIVILEGES ON ALL %s IN SCHEMA %s FROM %s", what, in, who))
		}
		list = append(list, fmt.Sprintf("REVOKE ALL ON SCHEMA %s FROM %s", in, who))
	}
	list = append(list, fmt.Sprintf("REVOKE ALL ON DATABASE %s FROM %s",
		pgx.Identifier{l.conn.Config().Database}.Sanitize(), who), "DROP ROLE IF EXISTS "+who)
	for _, text := range list {
		if _, err := tx.Exec(ctx, text); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
