package sensuctl

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/unpack"
	"github.com/spf13/cobra"
)

// Bounds of a command that is installed.
const (
	maxArchive   = 256 << 20
	downloadTime = 5 * time.Minute
)

var unpacked = unpack.Bounds{Bytes: 1 << 30, Files: 20_000}

// entrypoint is what an asset of a command has.
var entrypoint = filepath.Join("bin", "entrypoint")

var aliasRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// plugin is an installed command, as its folder says.
type plugin struct {
	Alias  string `json:"alias"`
	URL    string `json:"url"`
	SHA512 string `json:"sha512"`
}

// plugins builds `sensuctl command`.
func (s *Ctl) plugins(_ *command.Env, c *cobra.Command) {
	x := plugins{s}
	command.Group(c, x.install(), x.exec(), x.list(), x.delete())
}

// plugins are the commands about installed commands.
type plugins struct{ *Ctl }

// dir is where commands are kept: below --cache-dir, as sensuctl does.
func (s plugins) dir() string {
	base := s.env.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = filepath.Join(s.env.Getenv("HOME"), ".cache")
	}
	return filepath.Join(s.first(s.flags.cache, "SENSU_CACHE_DIR", filepath.Join(base, "sensu", "sensuctl")), "commands")
}

func pluginAt(dir, alias string) (p *plugin, err error) {
	if !aliasRule.MatchString(alias) {
		return nil, command.Usagef("alias %q must be letters, digits, and _ . -", alias)
	}
	raw, err := os.ReadFile(filepath.Join(dir, alias, "command.json"))
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("command %q is not installed: sensuctl command list shows those that are", alias)
	}
	if err == nil {
		p = new(plugin)
		err = json.Unmarshal(raw, p)
	}
	return p, err
}

func (s plugins) install() *cobra.Command {
	var from, sum string
	var update bool
	c := &cobra.Command{Use: "install ALIAS --url URL --checksum SHA512", Short: "Install a command from an asset",
		Args: command.Between(1, 2, "ALIAS")}
	c.Flags().StringVar(&from, "url", "", "the asset's archive")
	c.Flags().StringVar(&sum, "checksum", "", "its SHA-512, 128 hexadecimal digits")
	c.Flags().BoolVar(&update, "update", false, "replace an installed command of this alias")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 2 {
			return command.Usagef("%s: no catalogue of assets is asked: give --url and --checksum of the archive, as its page "+
				"says them", args[1])
		}
		raw, err := hex.DecodeString(sum)
		if err != nil || len(raw) != sha512.Size {
			return command.Usagef("--checksum must be the archive's SHA-512, 128 hexadecimal digits")
		}
		dir := s.dir()
		_, err = pluginAt(dir, args[0])
		var usage command.UsageError
		switch {
		case errors.As(err, &usage):
			return err
		case err == nil && !update:
			return fmt.Errorf("command %q is installed: --update replaces it", args[0])
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		if err := put(ctx, dir, &plugin{args[0], from, strings.ToLower(sum)}); err != nil {
			return err
		}
		return s.env.Printf("command was installed successfully\n")
	}
	return c
}

// put fetches an archive, verifies it, and puts its folder in place of the former one, which goes last.
func put(ctx context.Context, dir string, p *plugin) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(dir, ".unfinished-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) // with the former folder
	// No alias begins with a dot.
	archive, err := os.Create(filepath.Join(temp, ".archive"))
	if err != nil {
		return err
	}
	defer archive.Close()
	size, err := fetch(ctx, p, archive)
	if err != nil {
		return err
	}
	next := filepath.Join(temp, p.Alias)
	if err := os.MkdirAll(filepath.Join(next, "asset"), 0o700); err != nil {
		return err
	}
	if err := unpack.Archive(ctx, archive, size, filepath.Join(next, "asset"), unpacked); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(next, "asset", entrypoint))
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o100 == 0 {
		return fmt.Errorf("the archive has no program %s: it is no asset of a command", filepath.ToSlash(entrypoint))
	}
	said, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(next, "command.json"), said, 0o600); err != nil {
		return err
	}
	at, former := filepath.Join(dir, p.Alias), filepath.Join(temp, ".former")
	if err := os.Rename(at, former); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Rename(next, at); err != nil {
		return errors.Join(err, os.Rename(former, at))
	}
	return nil
}

func fetch(ctx context.Context, p *plugin, to io.Writer) (int64, error) {
	if !strings.HasPrefix(p.URL, "http://") && !strings.HasPrefix(p.URL, "https://") {
		return 0, command.Usagef("--url %q must begin with https:// or http://", p.URL)
	}
	body, err := open(ctx, p.URL)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	sum := sha512.New()
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(body, maxArchive+1))
	switch {
	case err != nil:
		return 0, errkind.E(errkind.Unavailable, "download of "+p.URL, err)
	case n > maxArchive:
		return 0, errkind.Errorf(errkind.TooLarge, "%s is larger than %d bytes", p.URL, maxArchive)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.SHA512 {
		return 0, fmt.Errorf("--checksum %s is not that of %s, which has %s: nothing was installed", p.SHA512, p.URL, got)
	}
	return n, nil
}

// open begins to read what is at a URL; ctx bounds it all.
func open(ctx context.Context, address string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, command.AsUsage(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close() // its content is of no use
		return nil, fmt.Errorf("%s: %s", address, resp.Status)
	}
	return resp.Body, nil
}

// exec runs an installed command with the login of the active configuration in its environment.
func (s plugins) exec() *cobra.Command {
	c := &cobra.Command{Use: "exec ALIAS [ARG...]", Short: "Run an installed command",
		Args: command.Between(1, -1, "ALIAS")}
	c.Flags().SetInterspersed(false) // what is behind the alias is the command's
	c.RunE = func(c *cobra.Command, args []string) error {
		dir := s.dir()
		if _, err := pluginAt(dir, args[0]); err != nil {
			return err
		}
		p, err := s.load()
		if err != nil {
			return err
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		if p.Access != "" {
			if _, err := s.client(ctx, p); err != nil { // a login that has ended is renewed
				return err
			}
		}
		at := filepath.Join(dir, args[0], "asset")
		run := exec.CommandContext(ctx, filepath.Join(at, entrypoint), args[1:]...)
		run.Stdin, run.Stdout, run.Stderr = s.env.In, s.env.Out, s.env.Err
		run.Env = append(s.env.Environ, s.said(p)...)
		run.Env = append(run.Env, "PATH="+filepath.Join(at, "bin")+string(os.PathListSeparator)+s.env.Getenv("PATH"))
		var ended *exec.ExitError
		if err := run.Run(); errors.As(err, &ended) {
			return command.ExitCode(max(ended.ExitCode(), 1))
		} else if err != nil {
			return err
		}
		return nil
	}
	return c
}

// said is the active configuration as variables.
func (s *Ctl) said(p *profile) []string {
	return []string{"SENSU_API_URL=" + p.URL, "SENSU_NAMESPACE=" + p.Namespace,
		"SENSU_FORMAT=" + cmp.Or(p.Format, "tabular"), "SENSU_TIMEOUT=" + cmp.Or(p.Timeout, "15s"),
		"SENSU_ACCESS_TOKEN=" + s.first(s.flags.token, "SENSU_ACCESS_TOKEN", p.Access),
		"SENSU_ACCESS_TOKEN_EXPIRES_AT=" + strconv.FormatInt(p.Expires, 10), "SENSU_REFRESH_TOKEN=" + p.Refresh,
		"SENSU_API_KEY=" + s.first(s.flags.apiKey, "SENSU_API_KEY", ""),
		"SENSU_TRUSTED_CA_FILE=" + p.CA, "SENSU_INSECURE_SKIP_TLS_VERIFY=" + strconv.FormatBool(p.Insecure)}
}

func (s plugins) list() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List installed commands", Args: command.Between(0, 0, "flags only")}
	s.formatFlag(c)
	c.RunE = func(*cobra.Command, []string) error {
		dir := s.dir()
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		list := []*plugin{}
		for _, e := range entries {
			if !aliasRule.MatchString(e.Name()) {
				continue // unfinished
			}
			p, err := pluginAt(dir, e.Name())
			if err != nil {
				return err
			}
			list = append(list, p)
		}
		if strings.HasSuffix(s.format, "json") {
			return command.WriteJSON(s.env.Out, list, false)
		}
		table := command.Table{Head: []string{"Alias", "URL", "SHA-512"}}
		for _, p := range list {
			table.Add(p.Alias, p.URL, p.SHA512)
		}
		return table.Write(s.env.Out)
	}
	return c
}

func (s plugins) delete() *cobra.Command {
	var sure bool
	c := &cobra.Command{Use: "delete ALIAS", Short: "Delete an installed command", Args: command.Between(1, 1, "ALIAS")}
	c.Flags().BoolVar(&sure, "skip-confirm", false, "do not ask")
	c.RunE = func(_ *cobra.Command, args []string) error {
		dir := s.dir()
		if _, err := pluginAt(dir, args[0]); err != nil {
			return err
		}
		if !sure {
			if err := s.confirm(args[0]); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, args[0])); err != nil {
			return err
		}
		return s.env.Printf("Deleted\n")
	}
	return c
}
