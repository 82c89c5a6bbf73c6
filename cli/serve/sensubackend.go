package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/backendconf"
	"corbel.dev/corbel/node/config"
	"github.com/spf13/cobra"
)

// backendFlag is a flag of sensu-backend as pflag fills it: backendconf knows the kinds and names all mistakes at once.
type backendFlag struct {
	setting backendconf.Setting
	values  []string
}

// String implements pflag.Value.
func (f *backendFlag) String() string { return strings.Join(f.values, ",") }

// Set implements pflag.Value.
func (f *backendFlag) Set(v string) error {
	if !f.setting.List() {
		f.values = f.values[:0]
	}
	f.values = append(f.values, v)
	return nil
}

// Type implements pflag.Value.
func (f *backendFlag) Type() string {
	if f.setting.Bool() {
		return "bool"
	}
	return "value"
}

// backendFlags adds the options of the backend, and returns those that were given, by name.
func backendFlags(c *cobra.Command) func() map[string]string {
	var all []*backendFlag
	for _, s := range backendconf.Settings {
		f := &backendFlag{setting: s}
		usage := s.Usage
		if s.Default != "" {
			usage += " (default " + s.Default + ")"
		}
		c.Flags().VarP(f, s.Name, s.Short, usage)
		if s.Bool() {
			c.Flags().Lookup(s.Name).NoOptDefVal = "true"
		}
		if strings.Contains(s.Usage, "accepted") {
			c.Flags().Lookup(s.Name).Hidden = true
		}
		all = append(all, f)
	}
	return func() map[string]string {
		given := map[string]string{}
		for _, f := range all {
			if len(f.values) > 0 {
				given[f.setting.Name] = f.String()
			}
		}
		return given
	}
}

// BackendStart builds `sensu-backend start`.
func BackendStart(e *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "flags only")
	c.Example = "  sensu-backend start --state-dir /var/lib/sensu/sensu-backend --log-level info\n  " +
		"SENSU_BACKEND_API_LISTEN_ADDRESS=127.0.0.1:8080 sensu-backend start -c /etc/sensu/backend.yml"
	given := backendFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := backendconf.Load(given(), e.Getenv)
		if err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
		for _, w := range cfg.Warnings {
			fmt.Fprintf(e.Err, "warning: %s\n", w)
		}
		return start(c.Context(), e, cfg.Process, func() (*config.Config, error) {
			fresh, err := backendconf.Load(given(), e.Getenv)
			if err != nil {
				return nil, err
			}
			return fresh.Process, nil
		})
	}
}

// exitInitialized is what scripts tell a backend by that was initialized before.
const exitInitialized = 3

// backendSeed is what init makes.
type backendSeed struct {
	Username string `json:"username"`
	Password string `json:"password"`
	APIKey   string `json:"api_key,omitempty"`
}

// BackendInit builds `sensu-backend init`.
func BackendInit(e *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "flags only")
	c.Long = "Make the administrator, the agents' user, roles and the namespace default of a backend\nthat runs and is " +
		"empty. Exit code 3: it was initialized before.\n\n  sensu-backend init --cluster-admin-username admin " +
		"--cluster-admin-password 'P@ssw0rd!'"
	given := backendFlags(c)
	var seed backendSeed
	var interactive, wait, ignore bool
	timeout := "5s"
	f := c.Flags()
	f.StringVar(&seed.Username, "cluster-admin-username", "",
		"name of the administrator (SENSU_BACKEND_CLUSTER_ADMIN_USERNAME)")
	f.StringVar(&seed.Password, "cluster-admin-password", "",
		"password, at least 8 characters (SENSU_BACKEND_CLUSTER_ADMIN_PASSWORD)")
	f.StringVar(&seed.APIKey, "cluster-admin-api-key", "", "an API key, a UUID (SENSU_BACKEND_CLUSTER_ADMIN_API_KEY)")
	f.BoolVar(&interactive, "interactive", false, "ask for name and password")
	f.BoolVar(&wait, "wait", false, "wait until the backend answers")
	f.BoolVar(&ignore, "ignore-already-initialized", false, "exit with 0 when it was initialized before")
	f.StringVar(&timeout, "timeout", timeout, "how long one attempt may take")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := backendconf.Read(given(), e.Getenv)
		if err != nil {
			return err
		}
		limit, err := time.ParseDuration(timeout)
		if err != nil || limit < time.Second {
			return command.Usagef("--timeout %q must be a duration of at least 1s", timeout)
		}
		for name, v := range map[string]*string{"USERNAME": &seed.Username, "PASSWORD": &seed.Password,
			"API_KEY": &seed.APIKey} {
			if *v == "" {
				*v = e.Getenv("SENSU_BACKEND_CLUSTER_ADMIN_" + name)
			}
		}
		if interactive {
			if err := askSeed(e, &seed); err != nil {
				return err
			}
		}
		if seed.Username == "" || seed.Password == "" {
			return command.Usagef("--cluster-admin-username and --cluster-admin-password are required, or --interactive")
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		client, err := backendClient(cfg)
		if err != nil {
			return err
		}
		err = sendSeed(ctx, client, cfg.Get("api-url"), seed, limit, wait)
		if errors.Is(err, errSeeded) {
			if ignore {
				return nil
			}
			fmt.Fprintln(e.Err, "Error: the store was already initialized")
			return command.ExitCode(exitInitialized)
		}
		return err
	}
}

// askSeed asks for what was not given.
func askSeed(e *command.Env, seed *backendSeed) error {
	in := bufio.NewReader(e.In)
	for _, q := range []struct {
		what string
		v    *string
	}{{"Cluster Admin Username", &seed.Username}, {"Cluster Admin Password", &seed.Password}} {
		if *q.v != "" {
			continue
		}
		fmt.Fprintf(e.Err, "%s: ", q.what)
		line, err := in.ReadString('\n')
		if err != nil && line == "" {
			return fmt.Errorf("%s: %w", q.what, err)
		}
		*q.v = strings.TrimRight(line, "\r\n")
	}
	return nil
}

var errSeeded = errors.New("initialized before")

func backendClient(cfg *backendconf.Config) (*http.Client, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: cfg.Get("insecure-skip-tls-verify") == "true"}
	if file := cfg.Get("trusted-ca-file"); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("trusted-ca-file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("trusted-ca-file: %s holds no certificate", file)
		}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: t, Proxy: http.ProxyFromEnvironment}}, nil
}

// sendSeed sends the seed to the backend; with wait again until it answers.
func sendSeed(ctx context.Context, client *http.Client, url string, seed backendSeed, limit time.Duration,
	wait bool) error {
	body, err := json.Marshal(seed)
	if err != nil {
		return err
	}
	url = strings.TrimRight(url, "/")
	lost := false // an answer was, so that the backend may have taken the seed
	for {
		again, err := sendSeedOnce(ctx, client, url+"/api/corbel/v1/monitor/init", body, limit)
		if lost && errors.Is(err, errSeeded) && logsIn(ctx, client, url, seed, limit) {
			return nil
		}
		if err == nil || !again || !wait || ctx.Err() != nil {
			return err
		}
		lost = true
		command.Wait(ctx, 250*time.Millisecond)
	}
}

// logsIn says whether the backend knows the administrator of a seed.
func logsIn(ctx context.Context, client *http.Client, url string, seed backendSeed, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/auth", nil)
	if err != nil {
		return false
	}
	r.SetBasicAuth(seed.Username, seed.Password)
	resp, err := client.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // its status is all that is asked for
	return resp.StatusCode == http.StatusOK
}

func sendSeedOnce(ctx context.Context, client *http.Client, url string, body []byte, limit time.Duration) (again bool,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("api-url: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return true, fmt.Errorf("the backend does not answer: %w; is it started? --wait waits for it, --api-url says "+
			"where it is", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return true, err
	}
	var told struct{ Message string }
	_ = json.Unmarshal(b, &told) // an answer of something else is shown by its status
	switch {
	case resp.StatusCode == http.StatusCreated:
		return false, nil
	case resp.StatusCode == http.StatusConflict:
		return false, errSeeded
	}
	return resp.StatusCode == http.StatusServiceUnavailable, fmt.Errorf("%s: %s", resp.Status, told.Message)
}

// BackendUpgrade builds `sensu-backend upgrade`.
func BackendUpgrade(e *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "flags only")
	c.Flags().Bool("skip-confirm", false, "accepted")
	c.Flags().String("timeout", "", "accepted")
	c.RunE = func(*cobra.Command, []string) error { return e.Printf("There is nothing to upgrade.\n") }
}

// BackendVersion builds `sensu-backend version`.
func BackendVersion(e *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "nothing")
	c.RunE = func(*cobra.Command, []string) error {
		b := version.Of()
		return e.Printf("sensu-backend version %s-corbel.%s, build %s, built %s\n", version.SensuContract, version.Number,
			b.Revision, b.Date)
	}
}
