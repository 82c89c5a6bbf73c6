package sensucmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

const historyPath = "/api/corbel/v1/events/history"

// pastOf is what a check on an entity went through.
type pastOf struct {
	Namespace, Entity, Check string
	Spans                    []struct {
		Status            uint32
		First, Last, Runs int64
	}
}

// history makes `history`: of one check a table of its own, of many one with their names.
func history(e *command.Env) *cobra.Command {
	flags := map[string]*string{}
	more := func(c *cobra.Command, d *dial) {
		d.listFlags(c)
		for name, text := range map[string]string{
			"since":  "such times alone as ended after this: 2006-01-02T15:04:05Z, Unix seconds, or how long ago (36h)",
			"until":  "such alone as began before this",
			"status": "such alone as had this status",
			"limit":  "the newest of each check alone",
		} {
			flags[name] = c.Flags().String(name, "", text)
		}
		c.Long = `Show when checks passed and failed, as periods of one status: for one check, for all checks of an
entity, or for all that the selectors match. --json writes one line per check.

  corbel events history web-1 cpu --since 36h
  corbel events history --status 2 --since 24h --json`
	}
	return act(e, "history [ENTITY [CHECK]]", "Show when checks passed and failed",
		command.Between(0, 2, "[ENTITY [CHECK]]"), more, func(ctx context.Context, d *dial, cl *sensu.Client,
			args []string) error {
			q := d.query()
			if !d.all || len(args) > 0 {
				q.Set("namespace", d.namespace)
			}
			for i, name := range []string{"entity", "check"}[:len(args)] {
				q.Set(name, args[i])
			}
			for name, value := range flags {
				if *value != "" {
					q.Set(name, *value)
				}
			}
			if len(args) == 2 {
				return oneHistory(ctx, d, cl, q, args)
			}
			return manyHistories(ctx, d, cl, q)
		})
}

func oneHistory(ctx context.Context, d *dial, cl *sensu.Client, q url.Values, args []string) error {
	raw, _, err := cl.Do(ctx, "GET", historyPath, q, nil)
	if err != nil {
		return absent(err, "events", args)
	}
	if d.json {
		return command.WriteJSON(d.env.Out, json.RawMessage(raw), false)
	}
	p, err := readPast(raw)
	if err != nil {
		return err
	}
	t := command.Table{Head: []string{"Status", "From", "To", "Runs"}}
	for _, s := range p.Spans {
		t.Add(status(s.Status), at(s.First), at(s.Last), strconv.FormatInt(s.Runs, 10))
	}
	return t.Write(d.env.Out)
}

func manyHistories(ctx context.Context, d *dial, cl *sensu.Client, q url.Values) error {
	t := command.Table{Head: []string{"Entity", "Check", "Status", "From", "To", "Runs"}}
	for raw, err := range cl.Lines(ctx, historyPath, q) {
		if err != nil {
			return err
		}
		if d.json {
			if err := d.env.Printf("%s\n", raw); err != nil {
				return err
			}
			continue
		}
		p, err := readPast(raw)
		if err != nil {
			return err
		}
		for _, s := range p.Spans {
			t.Add(p.Entity, p.Check, status(s.Status), at(s.First), at(s.Last), strconv.FormatInt(s.Runs, 10))
		}
	}
	if d.json {
		return nil
	}
	return t.Write(d.env.Out)
}

func readPast(raw []byte) (p pastOf, err error) {
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("the monitor's answer: %w", err)
	}
	return p, nil
}
