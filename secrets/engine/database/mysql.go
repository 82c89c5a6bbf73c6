package database

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/record"
)

// mysqlKind is the plug-in for MySQL and MariaDB. most is how many bytes the server lets a name have.
type mysqlKind struct{ most int }

const (
	mysqlPlugin = "mysql-database-plugin"
	// mysqlPacket bounds what is sent and read in one piece: statements and names are short.
	mysqlPacket = 1 << 20
)

// Numbers of errors, as the server's manual lists them.
const (
	mysqlTooMany   = 1040 // connections
	mysqlNoLogin   = 1045
	mysqlShutdown  = 1053
	mysqlSyntax    = 1064
	mysqlNoTable   = 1142 // no right to read it
	mysqlNoColumn  = 1143
	mysqlUserLimit = 1203
)

func (mysqlKind) params(cfg *config) record.Params {
	return record.Params{{Name: "connection_url", At: &cfg.URL}, {Name: "username", At: &cfg.User},
		{Name: "max_open_connections", At: &cfg.Open}, {Name: "max_idle_connections", At: &cfg.Idle},
		{Name: "max_connection_lifetime", At: &cfg.Lifetime}, {Name: "username_template", At: &cfg.Template},
		{Name: "tls_ca", At: &cfg.TLSCA}, {Name: "tls_server_name", At: &cfg.Server},
		{Name: "tls_skip_verify", At: &cfg.Insecure}}
}

func (k mysqlKind) longest() int { return k.most }

func (mysqlKind) check(cfg *config) error {
	if cfg.URL == "" {
		return invalid("connection_url cannot be empty")
	}
	_, err := cfg.mysql(cfg.Password)
	return err
}

func (mysqlKind) rotates(cfg *config) bool { return strings.Contains(cfg.URL, "{{password}}") }

// mysql is where to connect with a password. The places of the name and the password are filled after the text was
// taken apart: neither can lead elsewhere.
func (cfg *config) mysql(password string) (*mysql.Config, error) {
	my, err := mysql.ParseDSN(cfg.URL)
	if err != nil {
		return nil, invalid("connection_url cannot be read: it is like {{username}}:{{password}}@tcp(127.0.0.1:3306)/")
	}
	my.User = strings.ReplaceAll(my.User, "{{username}}", cfg.User)
	my.Passwd = strings.ReplaceAll(my.Passwd, "{{password}}", password)
	switch {
	case strings.Contains(my.Addr+my.DBName, "{{"):
		return nil, invalid("connection_url: {{username}} and {{password}} stand before the @ alone")
	case my.User == "":
		return nil, invalid("field \"username\": is missing, and so is a name in connection_url")
	case my.Net != "tcp" && my.Net != "unix":
		return nil, invalid("connection_url: the network %q is neither tcp nor unix", my.Net)
	case my.AllowOldPasswords:
		return nil, invalid("connection_url: allowOldPasswords would give the password away")
	}
	my.Logger = &mysql.NopLogger{}
	my.Timeout, my.ReadTimeout, my.WriteTimeout = connectWithin, workWithin, workWithin
	my.MaxAllowedPacket, my.AllowAllFiles, my.MultiStatements = mysqlPacket, false, false
	my.RejectReadOnly, my.InterpolateParams = false, false
	return my, cfg.encryptMySQL(my)
}

// encryptMySQL makes a connection TLS alone where the configuration has certificates.
func (cfg *config) encryptMySQL(my *mysql.Config) error {
	if cfg.TLSCA == "" && cfg.TLSKey == "" && cfg.Server == "" && !cfg.Insecure {
		return nil
	}
	host, _, err := net.SplitHostPort(my.Addr)
	if err != nil {
		host = my.Addr
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: cfg.Insecure}
	if cfg.Server != "" {
		t.ServerName = cfg.Server
	}
	if cfg.TLSCA != "" {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM([]byte(cfg.TLSCA)) {
			return invalid("field \"tls_ca\": holds no certificate in PEM")
		}
	}
	if cfg.TLSKey != "" {
		own, err := tls.X509KeyPair([]byte(cfg.TLSKey), []byte(cfg.TLSKey))
		if err != nil {
			return invalid("field \"tls_certificate_key\": is no certificate with its key, in PEM")
		}
		t.Certificates = []tls.Certificate{own}
	}
	my.TLS, my.TLSConfig, my.AllowFallbackToPlaintext = t, "", false
	return nil
}

func (mysqlKind) reaches(cfg *config) ([]reach, error) {
	my, err := cfg.mysql("x")
	if err != nil {
		return nil, err
	}
	r := reach{host: my.Net + ":" + my.Addr, bare: my.AllowCleartextPasswords}
	if host, port, err := net.SplitHostPort(my.Addr); err == nil && my.Net == "tcp" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, invalid("connection_url: the port %q is no number up to 65535", port)
		}
		r.host, r.port = host, uint16(n)
	}
	if t := my.TLS; t != nil {
		r.secured = !my.AllowFallbackToPlaintext
		r.known, r.name, r.roots = !t.InsecureSkipVerify, t.ServerName, t.RootCAs
	}
	return []reach{r}, nil
}

func (mysqlKind) connect(ctx context.Context, cfg *config, password string) (s session, again bool, err error) {
	my, err := cfg.mysql(password)
	if err != nil {
		return nil, false, err
	}
	to, err := mysql.NewConnector(my)
	if err != nil {
		return nil, false, invalid("connection_url cannot be used")
	}
	db := sql.OpenDB(to)
	conn, err := db.Conn(ctx)
	if err != nil {
		_ = db.Close()
		var refused *mysql.MySQLError
		return nil, errors.As(err, &refused) && refused.Number == mysqlNoLogin, err
	}
	return &mysqlSession{db: db, conn: conn, own: my.User}, false, nil
}

// judged gives an error its kind, without what may show a password.
func (mysqlKind) judged(name string, err error) error {
	var refused *mysql.MySQLError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		switch refused.Number {
		case mysqlTooMany, mysqlShutdown, mysqlUserLimit:
			return errkind.Errorf(errkind.Unavailable, "the database %s: %s", name, refused.Message)
		}
		return errkind.Errorf(errkind.Invalid, "the database %s refused (error %d): %s", name, refused.Number,
			refused.Message)
	case errkind.Of(err) != errkind.Internal:
		return err
	}
	return errkind.Errorf(errkind.Unavailable, "the database %s cannot be reached", name)
}

// mysqlSession is one connection: a pool of the library's with one alone.
type mysqlSession struct {
	db     *sql.DB
	conn   *sql.Conn
	own    string // the user that it belongs to
	broken bool   // a statement failed: what it left open nobody knows
}

func (l *mysqlSession) ping(ctx context.Context) error { return l.conn.PingContext(ctx) }
func (l *mysqlSession) close(context.Context) error    { return errors.Join(l.conn.Close(), l.db.Close()) }
func (l *mysqlSession) clean() bool                    { return !l.broken }

func (l *mysqlSession) create(ctx context.Context, how []string, v values) error {
	return l.run(ctx, how, v)
}

// renew has nothing to do without statements: users of MySQL do not end by themselves.
func (l *mysqlSession) renew(ctx context.Context, how []string, v values) error {
	return l.run(ctx, how, v)
}

func (l *mysqlSession) setPassword(ctx context.Context, how []string, v values) error {
	if len(how) == 0 {
		hosts, err := l.hosts(ctx, v.user)
		if v.user == l.own {
			hosts, err = l.ownHost(ctx)
		}
		if err != nil {
			return err
		}
		for _, host := range hosts {
			how = append(how, `ALTER USER '{{name}}'@'`+host+`' IDENTIFIED BY '{{password}}'`)
		}
	}
	return l.run(ctx, how, v)
}

func (l *mysqlSession) end(ctx context.Context, how []string, v values) error {
	hosts, err := l.hosts(ctx, v.user)
	if err != nil || len(hosts) == 0 {
		return err
	}
	if len(how) == 0 {
		for _, host := range hosts {
			how = append(how, `DROP USER IF EXISTS '{{name}}'@'`+host+`'`)
		}
	}
	return l.run(ctx, how, v)
}

func (l *mysqlSession) exists(ctx context.Context, user string) (bool, error) {
	hosts, err := l.hosts(ctx, user)
	return len(hosts) > 0, err
}

// hosts are those that a user may come from, each with a record of its own. An account that may not read them has the
// one that statements usually name.
func (l *mysqlSession) hosts(ctx context.Context, user string) (hosts []string, err error) {
	rows, err := l.conn.QueryContext(ctx, "SELECT host FROM mysql.user WHERE user = ?", user)
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && (refused.Number == mysqlNoTable || refused.Number == mysqlNoColumn) {
		return []string{"%"}, nil
	}
	if err != nil {
		l.broken = true
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	for rows.Next() {
		var host string
		if err := rows.Scan(&host); err != nil {
			return nil, err
		}
		if !strings.ContainsAny(host, unfit) {
			hosts = append(hosts, host)
		}
	}
	return hosts, rows.Err()
}

// ownHost is the host of the record that the server took the connection's own user to be. ALTER USER CURRENT_USER()
// is not used: MariaDB 10.11 answers that it did it, and does nothing.
func (l *mysqlSession) ownHost(ctx context.Context) ([]string, error) {
	var own string
	if err := l.conn.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&own); err != nil {
		l.broken = true
		return nil, err
	}
	host := own[strings.LastIndexByte(own, '@')+1:]
	if strings.ContainsAny(host, unfit) {
		return nil, invalid("the host of the user %q cannot stand in statements", own)
	}
	return []string{host}, nil
}

// run executes statements, one after the other: what makes users is no part of transactions in MySQL.
func (l *mysqlSession) run(ctx context.Context, list []string, v values) error {
	for _, text := range list {
		for _, one := range apart(text) {
			statement, err := v.expand(one)
			if err != nil {
				return err
			}
			if _, err := l.conn.ExecContext(ctx, statement); err != nil {
				l.broken = true
				return mute(v, err)
			}
		}
	}
	return nil
}

// apart divides a text at the semicolons that stand in no quotes.
func apart(text string) (list []string) {
	var quote byte
	from := 0
	add := func(to int) {
		if one := strings.TrimSpace(text[from:to]); one != "" {
			list = append(list, one)
		}
		from = to + 1
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"' || c == '`'):
			quote = c
		case quote == 0 && c == ';':
			add(i)
		}
	}
	if from < len(text) {
		add(len(text))
	}
	return list
}

// mute takes the password out of an error, also a piece of it: what the server shows of a statement is cut off
// somewhere.
func mute(v values, err error) error {
	var refused *mysql.MySQLError
	if v.password == "" || !errors.As(err, &refused) {
		return err
	}
	own := *refused
	own.Message = strings.ReplaceAll(own.Message, v.password, "*****")
	if shown, rest, ok := strings.Cut(own.Message, "' at line "); ok && own.Number == mysqlSyntax {
		for n := len(v.password); n > 0; n-- {
			if head, is := strings.CutSuffix(shown, v.password[:n]); is {
				shown = head + "*****"
				break
			}
		}
		own.Message = shown + "' at line " + rest
	}
	return &own
}
