package command

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		columns      int
		widths, want []int
	}{
		{0, []int{10, 200}, []int{10, 200}},
		{80, []int{10, 20, 30}, []int{10, 20, 30}},
		{40, []int{10, 60}, []int{10, 28}},
		{40, []int{50, 60}, []int{19, 19}},
		{10, []int{20, 30}, []int{8, 8}},
	} {
		got := slices.Clone(c.widths)
		look{columns: c.columns}.narrow(got, 2)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v in %d columns: %v, want %v", c.widths, c.columns, got, c.want)
		}
	}
}

// TestPlain: what is no terminal gets every cell whole, and no colour.
func TestPlain(t *testing.T) {
	var b bytes.Buffer
	table := Table{Head: []string{"NODE", "STATUS"}}
	table.Add("a-name-that-is-rather-long-for-a-terminal-of-forty-columns", "critical")
	if err := table.Write(OnTerminal(&b, func(string) string { return "" })); err != nil {
		t.Fatal(err)
	}
	want := "NODE                                                        STATUS\n" +
		"a-name-that-is-rather-long-for-a-terminal-of-forty-columns  critical\n"
	if b.String() != want {
		t.Errorf("%q", b.String())
	}
	if got := (look{colour: true}).paint("critical", false); got != red+"critical"+reset {
		t.Errorf("%q", got)
	}
	if got := (look{colour: true}).paint("criticality", false); got != "criticality" {
		t.Errorf("%q", got)
	}
}

func TestAgo(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for past, want := range map[time.Duration]string{0: "0s ago", 3 * time.Second: "3s ago", 90 * time.Second: "1m30s ago",
		25 * time.Minute: "25m ago", 3*time.Hour + 5*time.Minute: "3h5m ago", 30 * time.Hour: "30h ago",
		100 * time.Hour: "4d ago", -time.Hour: "in 1h"} {
		if got := Ago(now, now.Add(-past)); got != want {
			t.Errorf("%s: %q, want %q", past, got, want)
		}
	}
	if got := Ago(now, time.Unix(0, 0)); got != "-" {
		t.Errorf("never: %q", got)
	}
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	at := time.Unix(1_800_000_000, 0)
	p := &Progress{to: &b, what: "kv import", unit: "keys", total: 60_000, begun: at, now: func() time.Time { return at }}
	at = at.Add(time.Second)
	if p.Add(6000); b.Len() != 0 {
		t.Errorf("after a second: %q", b.String())
	}
	at = at.Add(time.Second)
	p.Add(6000)
	if got, want := b.String(), "\rkv import: 12,000 keys of 60,000 keys, 6,000 keys/s, 8s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.Add(1)
	p.End()
	if !bytes.HasSuffix(b.Bytes(), []byte(" \r")) {
		t.Errorf("the line stays: %q", b.String())
	}
}

func TestWrongFlag(t *testing.T) {
	c := &cobra.Command{Use: "x"}
	c.Flags().String("http-port", "", "")
	if got := WrongFlag(c, errors.New("unknown flag: --htp-port")).Error(); got !=
		"unknown flag: --htp-port; did you mean --http-port?" {
		t.Error(got)
	}
	if got := WrongFlag(c, errors.New("unknown flag: --colour")).Error(); got != "unknown flag: --colour" {
		t.Error(got)
	}
}

// TestWrongCommandWithAFlag: the word that is wrong is named, not the flag behind it.
func TestWrongCommandWithAFlag(t *testing.T) {
	for line, want := range map[string]string{
		"services lsit --watch": `unknown command "lsit" for "corbel services"; did you mean list?`,
		"services list --wacth": "unknown flag: --wacth; did you mean --watch?",
		"servces list --watch":  `unknown command "servces"; did you mean services?`,
		"nodes lsit --watch":    `unknown command "lsit" for "corbel nodes"; did you mean list?`,
		"services --watch":      "unknown flag: --watch",
	} {
		list := func() *cobra.Command {
			c := &cobra.Command{Use: "list", Run: func(*cobra.Command, []string) {}}
			c.Flags().Bool("watch", false, "")
			return c
		}
		nodes := &cobra.Command{Use: "nodes", Args: Between(0, 0, "no arguments"), Run: func(*cobra.Command, []string) {}}
		nodes.AddCommand(list())
		root := &cobra.Command{Use: "corbel", SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs,
			Run: func(*cobra.Command, []string) {}}
		root.SetFlagErrorFunc(WrongFlag)
		root.AddCommand(Named("services", "", list()), nodes)
		root.SetArgs(strings.Fields(line))
		if err := root.Execute(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}
