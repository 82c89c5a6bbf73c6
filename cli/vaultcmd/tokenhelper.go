package vaultcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/hcl"
)

// helperWithin bounds what a token helper does: it may ask a person.
const helperWithin = 5 * time.Minute

// tokenHelper is the program that keeps tokens in the place of ~/.vault-token, as the file ~/.vault
// (VAULT_CONFIG_PATH) names it with token_helper; "" is none.
func (c *Call) tokenHelper() (string, error) {
	path := c.Getenv("VAULT_CONFIG_PATH")
	if path == "" {
		home := c.Getenv("HOME")
		if home == "" {
			return "", nil
		}
		path = filepath.Join(home, ".vault")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the settings of commands: %w", err)
	}
	var settings map[string]any
	if err := hcl.DecodeErrorOnDuplicates(&settings, string(text)); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	helper, _ := settings["token_helper"].(string)
	if helper != "" && !filepath.IsAbs(helper) {
		if helper, err = exec.LookPath(helper); err != nil {
			return "", fmt.Errorf("%s: token_helper: %w", path, err)
		}
	}
	return helper, nil
}

// help has the token helper get, store or erase. It gets the server's address in VAULT_ADDR, and a token to store on
// its standard input.
func (c *Call) help(helper, what, token string) (string, error) {
	ctx, cancel := context.WithTimeout(c.Ctx(), helperWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, helper, what)
	cmd.Env = append(os.Environ(), "VAULT_ADDR="+c.cfg.Address)
	cmd.Stdin = strings.NewReader(token)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("token helper %s %s: %w: %s", helper, what, err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
