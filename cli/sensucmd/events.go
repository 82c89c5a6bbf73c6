package sensucmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client/sensu"
	"github.com/spf13/cobra"
)

// event is an event as far as it is printed.
type event struct {
	Timestamp int64
	Entity    struct {
		Metadata struct{ Name, Namespace string }
		Class    string `json:"entity_class"`
	}
	Check *struct {
		Metadata    struct{ Name string }
		Status      uint32
		State       string
		Output      string
		Command     string
		Executed    int64
		Occurrences int64
		Watermark   int64 `json:"occurrences_watermark"`
		LastOK      int64 `json:"last_ok"`
		IsSilenced  bool  `json:"is_silenced"`
		Silenced    []string
		Handlers    []string
		ProcessedBy string `json:"processed_by"`
		History     []struct{ Status uint32 }
	}
}

var eventHead = []string{"Entity", "Check", "Status", "Output", "Silenced", "Occurrences", "Time"}

// listedRow is a row of a table that is read once.
func listedRow(e *event) []string {
	row := eventRow(e)
	row[len(row)-1] = ago(e.Timestamp)
	return row
}

func eventRow(e *event) []string {
	if e.Check == nil {
		return []string{e.Entity.Metadata.Name, "(metrics)", "", "", "", "", at(e.Timestamp)}
	}
	c := e.Check
	return []string{e.Entity.Metadata.Name, c.Metadata.Name, status(c.Status), line(c.Output), yes(c.IsSilenced),
		strconv.FormatInt(c.Occurrences, 10), at(e.Timestamp)}
}

// status is a check's, with the word that operators use.
func status(n uint32) string {
	words := []string{"0 ok", "1 warning", "2 critical"}
	if int(n) < len(words) {
		return words[n]
	}
	return strconv.FormatUint(uint64(n), 10) + " unknown"
}

// Events builds `events`.
func Events(e *command.Env, c *cobra.Command) {
	d := new(dial)
	var follow, changes bool
	d.flags(e, c)
	d.listFlags(c)
	c.Flags().BoolVar(&follow, "watch", false, "show events as they are stored, until interrupted")
	c.Flags().BoolVar(&changes, "changes", false, "with --watch: only events that fail or end an incident")
	c.Args = cobra.ArbitraryArgs
	c.Long = `Manage events: the newest result of each check on each entity. Without a command, list them;
--watch shows them as they are stored.

  corbel events --watch --changes
  corbel events list --field-selector 'event.check.status != "0"'
  corbel events resolve web-1 cpu`
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return command.Usagef("unknown command %q for %q%s", args[0], c.CommandPath(), command.Suggestion(c, args[0]))
		}
		if changes && !follow {
			return command.Usagef("--changes needs --watch")
		}
		cl, err := d.client()
		if err != nil {
			return err
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		if follow {
			return watchEvents(ctx, d, cl, changes)
		}
		return printList(ctx, d, cl, "events", eventHead, listedRow)
	}
	c.AddCommand(
		list(e, "events", "the newest result of each check on each entity", eventHead, listedRow),
		info(e, "events", "ENTITY CHECK", "Show one event", 2, eventFields),
		resolveEvent(e),
		remove(e, "events", "ENTITY CHECK", "Delete an event", 2, joined),
		history(e), export(e),
	)
}

func eventFields(e *event, f *command.Fields) {
	f.Add("Entity", e.Entity.Metadata.Name+" ("+e.Entity.Class+")")
	f.Add("Namespace", e.Entity.Metadata.Namespace)
	f.Add("Time", at(e.Timestamp))
	c := e.Check
	if c == nil {
		return
	}
	f.Add("Check", c.Metadata.Name)
	f.Add("Status", status(c.Status)+", "+c.State)
	f.Add("Occurrences", fmt.Sprintf("%d, at most %d in this incident", c.Occurrences, c.Watermark))
	f.Add("Last ok", at(c.LastOK))
	f.Add("Silenced", strings.Join(c.Silenced, ", "))
	f.Add("Handlers", strings.Join(c.Handlers, ", "))
	if c.ProcessedBy != "" {
		f.Add("Run by", c.ProcessedBy)
	}
	past := make([]string, len(c.History))
	for i, r := range c.History {
		past[i] = strconv.FormatUint(uint64(r.Status), 10)
	}
	f.Add("History", strings.Join(past, " "))
	f.Add("Command", c.Command)
	f.Add("Output", strings.TrimRight(c.Output, "\n"))
}

// watchEvents prints events as they come. What breaks is told on stderr and begun anew.
func watchEvents(ctx context.Context, d *dial, cl *sensu.Client, changes bool) error {
	q := d.query()
	if !d.all {
		q.Set("namespace", d.namespace)
	}
	if changes {
		q.Set("changes", "true")
	}
	var last error
	for raw, err := range cl.Follow(ctx, q) {
		if last = err; err != nil {
			fmt.Fprintf(d.env.Err, "corbel: %v\n", err)
			continue
		}
		if d.json {
			if err := d.env.Printf("%s\n", raw); err != nil {
				return err
			}
			continue
		}
		var e event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("the monitor's answer: %w", err)
		}
		row := eventRow(&e)
		if err := d.env.Printf("%s  %s/%s  %s  occurrences %s%s  %s\n", row[6], row[0], row[1], row[2], row[5],
			map[string]string{"true": "  silenced"}[row[4]], row[3]); err != nil {
			return err
		}
	}
	if last != nil {
		return command.ExitCode(1) // said above
	}
	return nil
}

// resolveEvent makes `resolve`: the event as it is, passing.
func resolveEvent(e *command.Env) *cobra.Command {
	return act(e, "resolve ENTITY CHECK", "Resolve an event", command.Between(2, 2, "ENTITY CHECK"), nil,
		func(ctx context.Context, d *dial, cl *sensu.Client, args []string) error {
			path := d.path("events", joined(args))
			raw, _, err := cl.Do(ctx, "GET", path, nil, nil)
			if err != nil {
				return absent(err, "events", args)
			}
			var whole map[string]any
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.UseNumber()
			if err := dec.Decode(&whole); err != nil {
				return fmt.Errorf("the monitor's answer: %w", err)
			}
			check, ok := whole["check"].(map[string]any)
			if !ok {
				return fmt.Errorf("the event of %s has no check", args[0])
			}
			now := time.Now().Unix()
			check["status"], check["output"], check["executed"], whole["timestamp"] = 0,
				"Resolved manually with corbel events resolve", now, now
			delete(whole, "id")
			body, err := json.Marshal(whole)
			if err != nil {
				return err
			}
			if _, _, err := cl.Do(ctx, "PUT", path, nil, body); err != nil {
				return err
			}
			return d.env.Printf("Resolved %s\n", joined(args))
		})
}

func export(e *command.Env) *cobra.Command {
	return act(e, "export", "Write all events, one line of JSON each", command.Between(0, 0, "flags only"), listing,
		func(ctx context.Context, d *dial, cl *sensu.Client, _ []string) error {
			q := d.query()
			if !d.all {
				q.Set("namespace", d.namespace)
			}
			progress := d.env.Progress("events export", "events", 0)
			defer progress.End()
			for raw, err := range cl.Lines(ctx, "/api/corbel/v1/events/export", q) {
				if err != nil {
					return err
				}
				if err := d.env.Printf("%s\n", raw); err != nil {
					return err
				}
				progress.Add(1)
			}
			return nil
		})
}
