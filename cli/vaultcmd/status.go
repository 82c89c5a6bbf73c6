package vaultcmd

import (
	"encoding/json"
	"errors"
	"fmt"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/vault"
	"github.com/spf13/cobra"
)

// SealStatus is the answer of sys/seal-status and sys/unseal.
type SealStatus struct {
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
	On(e, cmd, "status", "vault status", 0, 0, func(c *Call, _ []string) error {
		return Plain(c.status())
	})
}

// Plain makes every error one of this side: status keeps 2 for "sealed".
func Plain(err error) error {
	var refused *vault.Error
	if errors.As(err, &refused) || errors.As(err, new(unreached)) {
		return errors.New(err.Error())
	}
	return err
}

// SealState asks for a state of the seal: of init, or of all.
func (c *Call) SealState(path, what string) (st SealStatus, err error) {
	a, err := c.Do("GET", path, nil)
	if err != nil {
		return st, Doing(what, err)
	}
	return st, command.Decode(a.Raw, &st)
}

func (c *Call) status() error {
	st, err := c.SealState("sys/seal-status", "checking seal status")
	if err != nil {
		return err
	}
	leader, err := c.Leader(st.Sealed)
	if err != nil {
		return err
	}
	if err := c.ShowStatus(&st, leader); err != nil {
		return err
	}
	if st.Sealed {
		return CodeRefused
	}
	return nil
}

// Leader asks which server is active.
func (c *Call) Leader(sealed bool) (*leaderStatus, error) {
	st := &leaderStatus{ActiveTime: noTime} // where there is none: scripts parse it as a time
	a, err := c.Do("GET", "sys/leader", nil)
	switch {
	case err == nil:
		return st, command.Decode(a.Raw, st)
	case sealed && errors.As(err, new(*vault.Error)):
		// a server that could be one of several tells no more while it is sealed
		st.HAEnabled = true
		return st, nil
	}
	return nil, Doing("checking leader status", err)
}

func (c *Call) ShowStatus(st *SealStatus, leader *leaderStatus) error {
	both := struct {
		*SealStatus
		*leaderStatus
	}{st, leader}
	if c.Field != "" {
		text, err := json.Marshal(both)
		if err != nil {
			return err
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			return err
		}
		return c.Member(fields)
	}
	if done, err := c.Structured(both); done {
		return err
	}
	return c.Pairs(statusRows(st, leader))
}

func statusRows(st *SealStatus, leader *leaderStatus) [][]string {
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
	rows = append(rows, []string{"Version", st.Version}, []string{"Build Date", OrNA(st.BuildDate)},
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
	rows = append(rows, []string{"HA Cluster", OrNA(leader.LeaderClusterAddress)}, []string{"HA Mode", mode})
	if leader.IsSelf {
		return append(rows, []string{"Active Since", leader.ActiveTime})
	}
	return append(rows, []string{"Active Node Address", OrNA(leader.LeaderAddress)})
}
