// Package operate holds the commands that look after a server of the secrets plane: its keys and
// shares, its Raft members, its profiles and log.
package operate

import (
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// Operator builds operator.
func Operator(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, operatorInit(e), operatorUnseal(e), operatorRekey(e), operatorGenerateRoot(e), operatorRaft(e),
		operatorMembers(e),
		vaultcmd.Leaf(e, "seal", "Seal the server: it forgets its keys at once", 0, 0, func(c *vaultcmd.Call,
			_ []string) error {
			a, err := c.Do("PUT", "sys/seal", nil)
			if err != nil {
				return vaultcmd.Doing("sealing", err)
			}
			return c.Changed(a, "Vault is sealed.")
		}),
		vaultcmd.Leaf(e, "key-status", "Show the key that records are encrypted with", 0, 0, keyStatus),
		vaultcmd.Leaf(e, "rotate", "Put a new key to use for what is written from now on", 0, 0, func(c *vaultcmd.Call,
			_ []string) error {
			if _, err := c.Do("PUT", "sys/rotate", nil); err != nil {
				return vaultcmd.Doing("rotating key", err)
			}
			if err := c.Success("Rotated key"); err != nil {
				return err
			}
			return keyStatus(c, nil)
		}),
		vaultcmd.Leaf(e, "step-down", "Make the active server give way to another", 0, 0, func(c *vaultcmd.Call,
			_ []string) error {
			a, err := c.Do("PUT", "sys/step-down", nil)
			if err != nil {
				return vaultcmd.Doing("stepping down", err)
			}
			return c.Changed(a, "Stepped down: %s", c.Client.Address())
		}))
}

func keyStatus(c *vaultcmd.Call, _ []string) error {
	a, err := c.Do("GET", "sys/key-status", nil)
	if err != nil {
		return vaultcmd.Doing("reading key status", err)
	}
	if c.Field != "" {
		return c.Member(a.Data)
	}
	if done, err := c.Structured(a.Data); done {
		return err
	}
	at := vaultcmd.Shown(a.Data["install_time"])
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = t.UTC().Format("02 Jan 06 15:04 UTC")
	}
	return c.Columns(nil, [][]string{{"Key Term", vaultcmd.Shown(a.Data["term"])}, {"Install Time", at},
		{"Encryption Count", vaultcmd.OrNA(a.Data["encryptions"])}})
}

// initFlags are the flags of operator init.
type initFlags struct {
	shares, threshold, recoveryShares, recoveryThreshold int
	pgpKeys, recoveryPGP                                 []string
	rootPGP                                              string
	onlyStatus                                           bool
}

func operatorInit(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "init", "Make the keys and the first token of a new server", 0, 0,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			var i initFlags
			f := cmd.Flags()
			f.IntVarP(&i.shares, "key-shares", "n", 5, "number of shares of the key")
			f.IntVarP(&i.threshold, "key-threshold", "t", 3, "how many of them are needed to unseal")
			f.IntVar(&i.recoveryShares, "recovery-shares", 5, "number of recovery shares, with a seal that opens by itself")
			f.IntVar(&i.recoveryThreshold, "recovery-threshold", 3, "how many shares are needed")
			f.StringSliceVar(&i.pgpKeys, "pgp-keys", nil, "files of OpenPGP keys, one for each share, to encrypt the shares for")
			f.StringSliceVar(&i.recoveryPGP, "recovery-pgp-keys", nil, "the same for recovery shares")
			f.StringVar(&i.rootPGP, "root-token-pgp-key", "", "file of the OpenPGP key to encrypt the root token for")
			f.BoolVar(&i.onlyStatus, "status", false, "only report whether it is initialized: exit code 0 yes, 2 no, 1 error")
			return i.run
		})
}

func (i *initFlags) run(c *vaultcmd.Call, _ []string) error {
	if i.onlyStatus {
		return vaultcmd.Plain(initialized(c))
	}
	st, err := c.SealState("sys/seal-status", "checking seal status")
	if err != nil {
		return err
	}
	body := map[string]any{"secret_shares": i.shares, "secret_threshold": i.threshold}
	if st.RecoverySeal {
		body = map[string]any{"recovery_shares": i.recoveryShares, "recovery_threshold": i.recoveryThreshold}
	}
	for _, err := range []error{putPGP(body, "pgp_keys", "pgp-keys", i.pgpKeys),
		putPGP(body, "recovery_pgp_keys", "recovery-pgp-keys", i.recoveryPGP),
		putOnePGP(body, "root_token_pgp_key", "root-token-pgp-key", i.rootPGP)} {
		if err != nil {
			return err
		}
	}
	a, err := c.Do("PUT", "sys/init", body)
	if err != nil {
		return vaultcmd.Doing("initializing", err)
	}
	return i.show(c, a)
}

func initialized(c *vaultcmd.Call) error {
	st, err := c.SealState("sys/init", "checking initialization status")
	if err != nil {
		return err
	}
	if st.Initialized {
		return c.Printf("Vault is initialized\n")
	}
	if err := c.Printf("Vault is not initialized\n"); err != nil {
		return err
	}
	return vaultcmd.CodeRefused
}

// show prints the new keys in the words that bootstrap scripts read.
func (i *initFlags) show(c *vaultcmd.Call, a *vault.Answer) error {
	var made struct {
		Keys           []string `json:"keys"`
		Keys64         []string `json:"keys_base64"`
		RecoveryKeys   []string `json:"recovery_keys"`
		RecoveryKeys64 []string `json:"recovery_keys_base64"`
		RootToken      string   `json:"root_token"`
	}
	if err := command.Decode(a.Raw, &made); err != nil {
		return err
	}
	some := func(list []string) []string { return append([]string{}, list...) }
	fields := map[string]any{"unseal_keys_b64": some(made.Keys64), "unseal_keys_hex": some(made.Keys),
		"unseal_shares": i.shares, "unseal_threshold": i.threshold,
		"recovery_keys_b64": some(made.RecoveryKeys64), "recovery_keys_hex": some(made.RecoveryKeys),
		"recovery_keys_shares":    i.recoveryShares,
		"recovery_keys_threshold": i.recoveryThreshold, "root_token": made.RootToken}
	if c.Field != "" {
		return c.Member(fields)
	}
	if done, err := c.Structured(fields); done {
		return err
	}
	var b strings.Builder
	for n, k := range made.Keys64 {
		fmt.Fprintf(&b, "Unseal Key %d: %s\n", n+1, k)
	}
	for n, k := range made.RecoveryKeys64 {
		fmt.Fprintf(&b, "Recovery Key %d: %s\n", n+1, k)
	}
	fmt.Fprintf(&b, "\nInitial Root Token: %s\n\n", made.RootToken)
	if len(made.Keys) > 0 {
		fmt.Fprintf(&b, "Vault initialized with %d key shares and a key threshold of %d. Give the shares to\ndifferent "+
			"people and keep them safe: after a restart or a seal, %d of them are\nneeded to unseal, and nobody can make "+
			"them again. Without them all is lost.\n", i.shares, i.threshold, i.threshold)
	} else {
		b.WriteString("Success! Vault is initialized\n")
	}
	return c.Printf("%s", b.String())
}

func operatorUnseal(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "unseal [KEY]", "Give one share of the key", 0, 1,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			f := cmd.Flags()
			reset := f.Bool("reset", false, "discard the shares given so far")
			migrate := f.Bool("migrate", false, "migrate to another seal")
			return func(c *vaultcmd.Call, args []string) error {
				body := map[string]any{"reset": *reset, "migrate": *migrate}
				if !*reset {
					key, err := share(c, args)
					if err != nil {
						return err
					}
					body["key"] = key
				}
				a, err := c.Do("PUT", "sys/unseal", body)
				if err != nil {
					return vaultcmd.Doing("unsealing", err)
				}
				var st vaultcmd.SealStatus
				if err := command.Decode(a.Raw, &st); err != nil {
					return err
				}
				leader, err := c.Leader(st.Sealed)
				if err != nil {
					return err
				}
				return c.ShowStatus(&st, leader)
			}
		})
}
