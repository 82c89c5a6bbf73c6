package vaultcmd

import (
	"encoding/json"
	"fmt"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// ownLeases builds `corbel secrets leases`: what storms of leases are watched and held with.
func ownLeases(e *command.Env, cmd *cobra.Command) {
	cmd.Long = "Whose tokens and leases there are (top), how the revocation of those that ended goes at\neach mount " +
		"(status), and a stop to it while a database or cloud is ill (pause, resume)."
	var children []*cobra.Command
	for _, child := range []struct {
		use, short string
		high       int
		run        func(c *Call, args []string) error
	}{
		{"top", "Show which roles have the most live tokens and leases", 0, leasesTop},
		{"status", "Show the progress of revocation at each mount", 0, leasesStatus},
		{"pause [MOUNT]", "Pause revocation at a mount, or everywhere", 1,
			func(c *Call, args []string) error { return leasesHold(c, args, "pause", "Paused") }},
		{"resume [MOUNT]", "Resume revocation at a mount, or everywhere", 1,
			func(c *Call, args []string) error { return leasesHold(c, args, "resume", "Resumed") }},
	} {
		one := &cobra.Command{Use: child.use, Short: child.short}
		run := child.run
		finish(&Call{Env: e, own: true}, one, 0, child.high,
			func(c *Call, args []string) error { return ownEnd(c, run(c, args)) })
		children = append(children, one)
	}
	command.Group(cmd, children...)
}

func leasesTop(c *Call, _ []string) error {
	a, err := c.Do("GET", "sys/leases/attribution", nil)
	if err != nil {
		return Doing("reading whose the leases are", err)
	}
	if done, err := c.Structured(a.Data); done {
		return err
	}
	rows := [][]string{}
	for _, one := range objects(a.Data["by_role"]) {
		rows = append(rows, []string{PlainText(one["mount"]), PlainText(one["type"]), PlainText(one["role"]),
			PlainText(one["tokens"]), PlainText(one["leases"]), PlainText(one["grew"])})
	}
	if err := c.Columns([]string{"Mount", "Type", "Role", "Tokens", "Leases", "Growth"}, rows); err != nil {
		return err
	}
	return c.Printf("%s tokens and %s leases of %s roles, as of %s\n", PlainText(a.Data["tokens"]),
		PlainText(a.Data["leases"]), PlainText(a.Data["roles"]), PlainText(a.Data["as_of"]))
}

func leasesStatus(c *Call, _ []string) error {
	a, err := c.Do("GET", "sys/leases/revocation", nil)
	if err != nil {
		return Doing("reading the state of revocation", err)
	}
	if done, err := c.Structured(a.Data); done {
		return err
	}
	rows := [][]string{}
	for _, one := range objects(a.Data["targets"]) {
		state := "circuit " + PlainText(one["circuit"])
		if one["paused"] == true {
			state = "paused"
		}
		left := "-"
		if n, ok := one["eta_seconds"].(json.Number); ok {
			if seconds, err := n.Int64(); err == nil {
				left = human(seconds)
			}
		}
		rows = append(rows, []string{PlainText(one["mount"]), state, PlainText(one["due"]), PlainText(one["in_flight"]),
			rounded(one["per_second"]), left,
			PlainText(one["failed"]), PlainText(one["last_error"])})
	}
	if err := c.Columns([]string{"Mount", "State", "Due", "Under way", "Per second", "Left", "Failed", "Last error"},
		rows); err != nil {
		return err
	}
	return c.Printf("Prefixes that wait to be revoked: %s\n", PlainText(a.Data["prefixes_waiting"]))
}

func leasesHold(c *Call, args []string, what, done string) error {
	body, at := map[string]any{}, "all mounts"
	if len(args) > 0 {
		at = Clean(args[0]) + "/"
		body["mount"] = at
	}
	a, err := c.Do("PUT", "sys/leases/revocation/"+what, body)
	if err != nil {
		return Doing(what+" of revocation", err)
	}
	return c.Changed(a, done+" the revocation of leases at: %s", at)
}

// objects are the objects of a list.
func objects(v any) (out []map[string]any) {
	list, _ := v.([]any)
	for _, one := range list {
		if m, ok := one.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// rounded is a number with one digit behind the point.
func rounded(v any) string {
	n, _ := v.(json.Number)
	f, err := n.Float64()
	if err != nil {
		return PlainText(v)
	}
	return fmt.Sprintf("%.1f", f)
}
