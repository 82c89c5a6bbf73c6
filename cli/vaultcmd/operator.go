package vaultcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// sealStatus is the answer of sys/seal-status and sys/unseal.
type sealStatus struct {
	Type         string `json:"type"`
	Initialized  bool   `json:"initialized"`
	Sealed       bool   `json:"sealed"`
	T            int    `json:"t"`
	N            int    `json:"n"`
	Progress     int    `json:"progress"`
	Nonce        string `json:"nonce"`
	Version      string `json:"version"`
	BuildDate    string `json:"build_date"`
	Migration    bool   `json:"migration"`
	ClusterName  string `json:"cluster_name,omitempty"`
	ClusterID    string `json:"cluster_id,omitempty"`
	RecoverySeal bool   `json:"recovery_seal"`
	StorageType  string `json:"storage_type"`
}

// noTime stands where no server is active, as in Vault's answers.
const noTime = "0001-01-01T00:00:00Z"

// leaderStatus is the answer of sys/leader.
type leaderStatus struct {
	HAEnabled            bool   `json:"ha_enabled"`
	IsSelf               bool   `json:"is_self"`
	ActiveTime           string `json:"active_time"`
	LeaderAddress        string `json:"leader_address"`
	LeaderClusterAddress string `json:"leader_cluster_address"`
	PerformanceStandby   bool   `json:"performance_standby"`
}

// Status builds status: 0 when the server is unsealed, 2 when it is sealed, 1 when it cannot be told.
func Status(e *command.Env, cmd *cobra.Command) {
	on(e, cmd, "status", "vault status", 0, 0, func(c *call, _ []string) error {
		return plain(c.status())
	})
}

// plain makes every error one of this side: status keeps 2 for "sealed".
func plain(err error) error {
	var refused *vault.Error
	if errors.As(err, &refused) || errors.As(err, new(unreached)) {
		return errors.New(err.Error())
	}
	return err
}

// sealState asks for a state of the seal: of init, or of all.
func (c *call) sealState(path, what string) (st sealStatus, err error) {
	a, err := c.do("GET", path, nil)
	if err != nil {
		return st, doing(what, err)
	}
	return st, command.Decode(a.Raw, &st)
}

func (c *call) status() error {
	st, err := c.sealState("sys/seal-status", "checking seal status")
	if err != nil {
		return err
	}
	leader, err := c.leader(st.Sealed)
	if err != nil {
		return err
	}
	if err := c.showStatus(&st, leader); err != nil {
		return err
	}
	if st.Sealed {
		return codeRefused
	}
	return nil
}

// leader asks which server is active.
func (c *call) leader(sealed bool) (*leaderStatus, error) {
	st := &leaderStatus{ActiveTime: noTime} // where there is none: scripts parse it as a time
	a, err := c.do("GET", "sys/leader", nil)
	switch {
	case err == nil:
		return st, command.Decode(a.Raw, st)
	case sealed && errors.As(err, new(*vault.Error)):
		// a server that could be one of several tells no more while it is sealed
		st.HAEnabled = true
		return st, nil
	}
	return nil, doing("checking leader status", err)
}

func (c *call) showStatus(st *sealStatus, leader *leaderStatus) error {
	both := struct {
		*sealStatus
		*leaderStatus
	}{st, leader}
	if c.field != "" {
		text, err := json.Marshal(both)
		if err != nil {
			return err
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			return err
		}
		return c.member(fields)
	}
	if done, err := c.structured(both); done {
		return err
	}
	return c.pairs(statusRows(st, leader))
}

func statusRows(st *sealStatus, leader *leaderStatus) [][]string {
	name := ""
	if st.RecoverySeal {
		name = "Recovery "
	}
	rows := [][]string{{name + "Seal Type", st.Type}, {"Initialized", fmt.Sprint(st.Initialized)},
		{"Sealed", fmt.Sprint(st.Sealed)},
		{"Total " + name + "Shares", fmt.Sprint(st.N)}, {"Threshold", fmt.Sprint(st.T)}}
	if st.Sealed {
		nonce := st.Nonce
		if nonce == "" {
			nonce = "n/a"
		}
		rows = append(rows, []string{"Unseal Progress", fmt.Sprintf("%d/%d", st.Progress, st.T)},
			[]string{"Unseal Nonce", nonce})
	}
	rows = append(rows, []string{"Version", st.Version}, []string{"Build Date", orNA(st.BuildDate)},
		[]string{"Storage Type", st.StorageType})
	if st.ClusterName != "" {
		rows = append(rows, []string{"Cluster Name", st.ClusterName}, []string{"Cluster ID", st.ClusterID})
	}
	rows = append(rows, []string{"HA Enabled", fmt.Sprint(leader != nil && leader.HAEnabled)})
	if leader == nil || !leader.HAEnabled || st.Sealed {
		return rows
	}
	mode := "standby"
	if leader.IsSelf {
		mode = "active"
	}
	rows = append(rows, []string{"HA Cluster", orNA(leader.LeaderClusterAddress)}, []string{"HA Mode", mode})
	if leader.IsSelf {
		return append(rows, []string{"Active Since", leader.ActiveTime})
	}
	return append(rows, []string{"Active Node Address", orNA(leader.LeaderAddress)})
}

// Operator builds operator.
func Operator(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, operatorInit(e), operatorUnseal(e), operatorRekey(e), operatorGenerateRoot(e), operatorRaft(e),
		operatorMembers(e),
		leaf(e, "seal", "Seal the server: it forgets its keys at once", 0, 0, func(c *call, _ []string) error {
			a, err := c.do("PUT", "sys/seal", nil)
			if err != nil {
				return doing("sealing", err)
			}
			return c.changed(a, "Vault is sealed.")
		}),
		leaf(e, "key-status", "Show the key that records are encrypted with", 0, 0, (*call).keyStatus),
		leaf(e, "rotate", "Put a new key to use for what is written from now on", 0, 0, func(c *call, _ []string) error {
			if _, err := c.do("PUT", "sys/rotate", nil); err != nil {
				return doing("rotating key", err)
			}
			if err := c.success("Rotated key"); err != nil {
				return err
			}
			return c.keyStatus(nil)
		}),
		leaf(e, "step-down", "Make the active server give way to another", 0, 0, func(c *call, _ []string) error {
			a, err := c.do("PUT", "sys/step-down", nil)
			if err != nil {
				return doing("stepping down", err)
			}
			return c.changed(a, "Stepped down: %s", c.client.Address())
		}))
}

func (c *call) keyStatus([]string) error {
	a, err := c.do("GET", "sys/key-status", nil)
	if err != nil {
		return doing("reading key status", err)
	}
	if c.field != "" {
		return c.member(a.Data)
	}
	if done, err := c.structured(a.Data); done {
		return err
	}
	at := shown(a.Data["install_time"])
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = t.UTC().Format("02 Jan 06 15:04 UTC")
	}
	return c.columns(nil, [][]string{{"Key Term", shown(a.Data["term"])}, {"Install Time", at},
		{"Encryption Count", orNA(a.Data["encryptions"])}})
}

// initFlags are the flags of operator init.
type initFlags struct {
	shares, threshold, recoveryShares, recoveryThreshold int
	pgpKeys, recoveryPGP                                 []string
	rootPGP                                              string
	onlyStatus                                           bool
}

func operatorInit(e *command.Env) *cobra.Command {
	return with(e, "init", "Make the keys and the first token of a new server", 0, 0,
		func(cmd *cobra.Command) func(*call, []string) error {
			var i initFlags
			f := cmd.Flags()
			f.IntVarP(&i.shares, "key-shares", "n", 5, "number of shares of the key")
			f.IntVarP(&i.threshold, "key-threshold", "t", 3, "how many of them unseal")
			f.IntVar(&i.recoveryShares, "recovery-shares", 5, "number of recovery shares, with a seal that opens by itself")
			f.IntVar(&i.recoveryThreshold, "recovery-threshold", 3, "how many of them are needed")
			f.StringSliceVar(&i.pgpKeys, "pgp-keys", nil, "files of OpenPGP keys, one for each share, to encrypt the shares for")
			f.StringSliceVar(&i.recoveryPGP, "recovery-pgp-keys", nil, "the same for recovery shares")
			f.StringVar(&i.rootPGP, "root-token-pgp-key", "", "file of the OpenPGP key to encrypt the root token for")
			f.BoolVar(&i.onlyStatus, "status", false, "only tell whether it is done: 0 yes, 2 no, 1 an error")
			return i.run
		})
}

func (i *initFlags) run(c *call, _ []string) error {
	if i.onlyStatus {
		return plain(c.initialized())
	}
	st, err := c.sealState("sys/seal-status", "checking seal status")
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
	a, err := c.do("PUT", "sys/init", body)
	if err != nil {
		return doing("initializing", err)
	}
	return i.show(c, a)
}

func (c *call) initialized() error {
	st, err := c.sealState("sys/init", "checking initialization status")
	if err != nil {
		return err
	}
	if st.Initialized {
		return c.Printf("Vault is initialized\n")
	}
	if err := c.Printf("Vault is not initialized\n"); err != nil {
		return err
	}
	return codeRefused
}

// show prints the new keys in the words that bootstrap scripts read.
func (i *initFlags) show(c *call, a *vault.Answer) error {
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
	if c.field != "" {
		return c.member(fields)
	}
	if done, err := c.structured(fields); done {
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
	return with(e, "unseal [KEY]", "Give one share of the key", 0, 1,
		func(cmd *cobra.Command) func(*call, []string) error {
			f := cmd.Flags()
			reset := f.Bool("reset", false, "forget the shares that were given so far")
			migrate := f.Bool("migrate", false, "go to another seal")
			return func(c *call, args []string) error {
				body := map[string]any{"reset": *reset, "migrate": *migrate}
				if !*reset {
					key, err := c.share(args)
					if err != nil {
						return err
					}
					body["key"] = key
				}
				a, err := c.do("PUT", "sys/unseal", body)
				if err != nil {
					return doing("unsealing", err)
				}
				var st sealStatus
				if err := command.Decode(a.Raw, &st); err != nil {
					return err
				}
				leader, err := c.leader(st.Sealed)
				if err != nil {
					return err
				}
				return c.showStatus(&st, leader)
			}
		})
}
