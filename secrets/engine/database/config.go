package database

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/naming"
	"corbel.dev/corbel/secrets/engine/record"
)

// config is a database, under "config/<name>".
type config struct {
	Name     string   `json:"name"`
	URL      string   `json:"connection_url"`
	User     string   `json:"username,omitempty"`
	Password string   `json:"password,omitempty"`
	Pending  string   `json:"pending,omitempty"` // a password that may have been set
	Roles    []string `json:"allowed_roles,omitempty"`
	Rotate   []string `json:"root_rotation_statements,omitempty"`
	limits
	Auth     string `json:"password_authentication"`
	Raw      bool   `json:"disable_escaping,omitempty"`
	Policy   string `json:"password_policy,omitempty"`
	Template string `json:"username_template,omitempty"`
	tlsFiles
	place
}

// limits bounds the connections.
type limits struct {
	Open     int           `json:"max_open_connections"`
	Idle     int           `json:"max_idle_connections"`
	Lifetime time.Duration `json:"max_connection_lifetime,omitempty"`
}

// tlsFiles is how a server is trusted, and the certificate that is shown to it.
type tlsFiles struct {
	TLSCA   string `json:"tls_ca,omitempty"` // PEM, as the two below
	TLSCert string `json:"tls_certificate,omitempty"`
	TLSKey  string `json:"private_key,omitempty"` // nobody reads it
}

// place is what plug-ins other than the first need, and which one it is.
type place struct {
	Plugin   string `json:"plugin,omitempty"`
	Host     string `json:"host,omitempty"`
	Port     int    `json:"port,omitempty"`
	TLS      bool   `json:"tls,omitempty"`
	Insecure bool   `json:"insecure_tls,omitempty"`
	CA       string `json:"ca_cert,omitempty"` // PEM
	Server   string `json:"tls_server_name,omitempty"`
}

const connectsMax = 64

func (cfg *config) params() record.Params { return cfg.kind().params(cfg) }

func (c *call) config(name string) (*config, error) {
	cfg, ok, err := c.e.configs.Get(c, c.view, "config/"+name, record.ReadJSON[config])
	if err == nil && !ok {
		err = invalid("failed to find entry for connection with name: %q", name)
	}
	return cfg, err
}

func (c *call) readConfig() (*secrets.Response, error) {
	cfg, ok, err := c.e.configs.Get(c, c.view, c.r.Rest, record.ReadJSON[config])
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errNotFound
	}
	details := map[string]any{}
	cfg.params().Show(details)
	if cfg.URL != "" {
		details["connection_url"] = hidden(cfg.URL)
	}
	return answer(map[string]any{"plugin_name": cfg.pluginName(), "plugin_version": "", "connection_details": details,
		"allowed_roles":                      listed(cfg.Roles),
		"root_credentials_rotate_statements": listed(cfg.Rotate), "password_policy": cfg.Policy})
}

// hidden is a URL without the password that it may hold.
func hidden(text string) string {
	if strings.Contains(text, "{{password}}") {
		return text
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	if strings.Contains(text, "password") {
		return "*****"
	}
	return text
}

func (c *call) writeConfig() (*secrets.Response, error) {
	cfg := &config{Name: c.name, limits: limits{Open: 4}, Auth: "password"}
	have, ok, err := c.e.configs.Get(c, c.view, c.r.Rest, record.ReadJSON[config])
	if err != nil {
		return nil, err
	}
	if ok {
		*cfg = *have
	}
	name := c.f.String("plugin_name")
	switch _, known := kinds[name]; {
	case !known || name == "" && !ok:
		return nil, invalid("field \"plugin_name\": must be %s", pluginNames())
	case ok && name != "" && name != have.pluginName():
		return nil, invalid("field \"plugin_name\": is %s: delete the configuration first", have.pluginName())
	case !ok && name != plugin:
		cfg.Plugin = name
	}
	if err := cfg.params().Read(c.f); err != nil {
		return nil, err
	}
	if c.f.Has("password") {
		cfg.Password, cfg.Pending = c.f.String("password"), ""
	}
	for _, field := range []string{"private_key", "tls_certificate_key"} { // of PostgreSQL, and of MySQL
		if c.f.Has(field) {
			cfg.TLSKey = c.f.String(field)
		}
	}
	if c.f.Has("password_policy") {
		cfg.Policy = c.f.String("password_policy")
	}
	if c.f.Has("allowed_roles") {
		cfg.Roles = c.f.Strings("allowed_roles")
	}
	statements(c.f, "root_rotation_statements", &cfg.Rotate)
	verify := c.f.Bool("verify_connection", true)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if cfg.Open < 1 || cfg.Open > connectsMax || cfg.Idle < 0 {
		return nil, invalid("field \"max_open_connections\": must be 1 to %d", connectsMax)
	}
	if err := cfg.kind().check(cfg); err != nil {
		return nil, err
	}
	if ok && !c.f.Has("password") && have.Password != "" {
		if err := cfg.keepsTo(have); err != nil {
			return nil, err
		}
	}
	if err := c.fits(cfg); err != nil {
		return nil, err
	}
	c.e.close(c.name)
	err = c.e.counted(initializes, func() error {
		if !verify {
			return nil
		}
		return c.e.links.do(c, cfg, func(ctx context.Context, l *link) error { return l.ping(ctx) })
	})
	if err != nil {
		return nil, invalid("error verifying connection: %v", err)
	}
	return store(c.r.Rest, cfg)
}

// connection is where to connect with a password.
func (cfg *config) connection(password string) (*pgx.ConnConfig, error) {
	user := cfg.User
	isURL := strings.HasPrefix(cfg.URL, "postgres://") || strings.HasPrefix(cfg.URL, "postgresql://")
	switch {
	case cfg.Raw:
	case isURL:
		user, password = url.PathEscape(user), url.PathEscape(password)
	default:
		quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
		user, password = quote.Replace(user), quote.Replace(password)
		if strings.ContainsAny(password, " \t") && !strings.Contains(cfg.URL, "'{{password}}'") {
			password = "'" + password + "'"
		}
	}
	pc, err := pgx.ParseConfig(strings.NewReplacer("{{username}}", user, "{{password}}", password).Replace(cfg.URL))
	if err != nil {
		return nil, invalid("connection_url cannot be read") // the error may show it
	}
	pc.ConnectTimeout = connectWithin
	return pc, cfg.encrypt(pc)
}

// keepsTo refuses a configuration that would show the password that is stored, and that its writer need not know, to
// anybody else: another host, or one on the way to the same one.
func (cfg *config) keepsTo(have *config) error {
	is, err := cfg.kind().reaches(cfg)
	if err != nil {
		return err
	}
	was, err := have.kind().reaches(have)
	if err != nil || !slices.EqualFunc(is, was, reach.same) {
		return invalid("field \"password\": must be given again, since the connection leads elsewhere or is secured in " +
			"another way than the one that it was stored for")
	}
	return nil
}

// reach is an address that gets the password, and what vouches that it is the right one.
type reach struct {
	host           string
	port           uint16
	secured, known bool // with TLS; with a certificate that is looked at
	name           string
	roots          *x509.CertPool
	bare           bool // the password may be sent as it is, without TLS
}

func (r reach) same(o reach) bool {
	return r.host == o.host && r.port == o.port && r.secured == o.secured && r.known == o.known && r.name == o.name &&
		r.bare == o.bare &&
		(r.roots == o.roots || r.roots != nil && o.roots != nil && r.roots.Equal(o.roots))
}

// reaches implements kind.
func (postgres) reaches(cfg *config) ([]reach, error) {
	pc, err := cfg.connection("x") // its place may be anywhere
	if err != nil {
		return nil, err
	}
	at := func(host string, port uint16, t *tls.Config) reach {
		r := reach{host: host, port: port, secured: t != nil}
		if t != nil {
			r.known, r.name, r.roots = !t.InsecureSkipVerify || t.VerifyPeerCertificate != nil, t.ServerName, t.RootCAs
		}
		return r
	}
	all := []reach{at(pc.Host, pc.Port, pc.TLSConfig)}
	for _, f := range pc.Fallbacks {
		all = append(all, at(f.Host, f.Port, f.TLSConfig))
	}
	return all, nil
}

// encrypt makes a connection TLS alone, with the certificates of the configuration where it has some.
func (cfg *config) encrypt(pc *pgx.ConnConfig) error {
	if cfg.TLSCA == "" && cfg.TLSCert == "" && cfg.TLSKey == "" {
		return nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: pc.Host}
	if cfg.TLSCA != "" {
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM([]byte(cfg.TLSCA)) {
			return invalid("field \"tls_ca\": holds no certificate in PEM")
		}
	}
	if cfg.TLSCert != "" || cfg.TLSKey != "" {
		own, err := tls.X509KeyPair([]byte(cfg.TLSCert), []byte(cfg.TLSKey))
		if err != nil {
			return invalid("fields \"tls_certificate\", \"private_key\": are no certificate with its key, in PEM")
		}
		t.Certificates = []tls.Certificate{own}
	}
	pc.TLSConfig, pc.Fallbacks = t, nil // a fallback might be without TLS
	return nil
}

// reload lets go of the connections of all configurations of a plugin.
func (c *call) reload() (*secrets.Response, error) {
	if _, known := kinds[c.name]; !known {
		return nil, invalid("no plugins were found with name %q", c.name)
	}
	names, err := c.view.List(c, "config/", "", 0)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		cfg, ok, err := c.e.configs.Get(c, c.view, "config/"+name, record.ReadJSON[config])
		return err != nil || !ok || cfg.pluginName() != c.name
	})
	for _, name := range names {
		c.e.close(name)
	}
	return answer(map[string]any{"connections": listed(names), "count": len(names)})
}

// reset lets go of the connections.
func (c *call) reset() (*secrets.Response, error) {
	_, err := c.config(c.name)
	c.e.close(c.name)
	return &secrets.Response{}, err
}

// rotateRoot changes the password that the mount itself connects with; nobody knows it then.
func (c *call) rotateRoot() (*secrets.Response, error) {
	have, err := c.config(c.name)
	if err != nil {
		return nil, err
	}
	if have.User == "" || !have.kind().rotates(have) {
		return nil, invalid("rotate-root needs username, password and a connection_url with {{username}} and {{password}}")
	}
	cfg := *have
	if cfg.Pending != "" { // of a crash: which of the two counts must be known before another takes its place
		c.e.close(c.name)
		err := c.e.links.do(c, have, func(_ context.Context, l *link) error {
			cfg.Password = l.password
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if cfg.Pending, err = c.password(&cfg); err != nil {
		return nil, err
	}
	resp, err := store("config/"+c.name, cfg)
	if err != nil {
		return nil, err
	}
	resp.Then = step(func(ctx context.Context) (*secrets.Response, error) {
		stored, err := cfg.stored(cfg.Pending)
		if err != nil {
			return nil, err
		}
		err = c.e.ask(ctx, updates, &cfg, func(ctx context.Context, l *link) error {
			return l.setPassword(ctx, cfg.Rotate, values{user: cfg.User, password: stored})
		})
		if err != nil {
			return nil, err
		}
		c.e.close(c.name)
		done := cfg
		done.Password, done.Pending = cfg.Pending, ""
		return store("config/"+c.name, done)
	})
	return resp, nil
}

// newPassword has 20 characters, of all kinds, none of which needs a quote.
func newPassword() string {
	return naming.Draw(17, naming.Letters+"-") + naming.Draw(1, "0123456789") + naming.Draw(1, "abc") +
		naming.Draw(1, "XYZ")
}

// newUser names a user by who asked for what: v-<token>-<role>-<20 drawn>-<time>, or as much of it as longest bytes
// hold.
func newUser(holder, role string, now time.Time, longest int) string {
	switch {
	case longest >= 51:
		return fmt.Sprintf("v-%.8s-%.8s-%s-%d", naming.Plain(holder), naming.Plain(role),
			naming.Draw(20, naming.Letters), now.Unix())
	case longest >= 32:
		return fmt.Sprintf("v-%.8s-%.6s-%s", naming.Plain(holder), naming.Plain(role), naming.Draw(14, naming.Letters))
	}
	return fmt.Sprintf("v-%.3s-%s", naming.Plain(role), naming.Draw(10, naming.Letters))
}

// stored is a password as statements give it: itself, or hashed so that the server never sees it.
func (cfg *config) stored(password string) (string, error) {
	if cfg.Auth != "scram-sha-256" {
		return password, nil
	}
	const rounds = 4096
	salt := make([]byte, 16)
	_, _ = rand.Read(salt)
	key, err := pbkdf2.Key(sha256.New, password, salt, rounds, 32)
	if err != nil {
		return "", err
	}
	mac := func(what string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(what))
		return m.Sum(nil)
	}
	client := sha256.Sum256(mac("Client Key"))
	enc := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, enc(salt), enc(client[:]), enc(mac("Server Key"))), nil
}
