package database

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/secrets/engine/record"
)

// kind is a plug-in: what it takes to speak to one kind of database.
type kind interface {
	// params are the parameters of a configuration, but for what nobody reads.
	params(cfg *config) record.Params
	// longest is how many bytes a user's name may have.
	longest() int
	// check says what of a configuration is wrong.
	check(cfg *config) error
	// rotates reports whether the mount's own password can be changed.
	rotates(cfg *config) bool
	// connect opens a session; again is whether the password was refused, so that another one may do.
	connect(ctx context.Context, cfg *config, password string) (s session, again bool, err error)
	// judged gives an error its kind, without what may show a password.
	judged(name string, err error) error
	// reaches are all the addresses that a connection may be tried at.
	reaches(cfg *config) ([]reach, error)
}

// session is one connection. How a thing is done is told by statements, where somebody gave any.
type session interface {
	ping(ctx context.Context) error
	close(ctx context.Context) error
	// clean reports whether the next one may use it.
	clean() bool
	create(ctx context.Context, how []string, v values) error
	renew(ctx context.Context, how []string, v values) error
	setPassword(ctx context.Context, how []string, v values) error
	// end takes a user away; one that is not there is no error.
	end(ctx context.Context, how []string, v values) error
	exists(ctx context.Context, user string) (bool, error)
}

const plugin = "postgresql-database-plugin"

// kinds are the plug-ins by name. What a former version stored has no name and is PostgreSQL.
var kinds = map[string]kind{"": postgres{}, plugin: postgres{}, redisPlugin: redis{}, "valkey-database-plugin": redis{},
	mysqlPlugin: mysqlKind{most: 32}, "mysql-aurora-database-plugin": mysqlKind{most: 32},
	"mysql-rds-database-plugin": mysqlKind{most: 32}, "mysql-legacy-database-plugin": mysqlKind{most: 16}}

// Plugins are the names of the plug-ins, in order.
func Plugins() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(n string) bool { return n == "" })
}

func (cfg *config) kind() kind { return kinds[cfg.Plugin] }

// pluginName is the name that users know it by.
func (cfg *config) pluginName() string {
	if cfg.Plugin == "" {
		return plugin
	}
	return cfg.Plugin
}

func pluginNames() string { return strings.Join(Plugins(), " or ") }

// values are what statements hold places for.
type values struct {
	user, password string
	until          time.Time
}

// expand fills the places of a statement. What would end a quotation is refused, not escaped: whether a
// place stands in quotes, and in which, is the statement's to say.
func (v values) expand(statement string) (string, error) {
	if strings.ContainsAny(v.user+v.password, unfit) {
		return "", invalid("a name or password with quotes, backslashes, semicolons or line ends cannot stand in " +
			"statements")
	}
	until := "infinity"
	if !v.until.IsZero() {
		until = v.until.UTC().Format("2006-01-02 15:04:05-0700")
	}
	return strings.NewReplacer("{{name}}", v.user, "{{username}}", v.user, "{{password}}", v.password, "{{expiration}}",
		until).Replace(statement), nil
}
