package meshcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// intention is who may talk to whom, as the API has it.
type intention struct {
	ID              string `json:",omitempty"`
	Description     string `json:",omitempty"`
	SourceName      string
	SourcePeer      string `json:",omitempty"`
	DestinationName string
	SourceType      string            `json:",omitempty"`
	Action          string            `json:",omitempty"`
	Permissions     json.RawMessage   `json:",omitempty"`
	Meta            map[string]string `json:",omitempty"`
	Precedence      int               `json:",omitempty"`
	CreatedAt       time.Time         `json:",omitzero"`
	UpdatedAt       time.Time         `json:",omitzero"`
}

func (i *intention) verdict() string {
	if i.Action == "" && len(i.Permissions) > 0 {
		var list []json.RawMessage
		_ = json.Unmarshal(i.Permissions, &list) // what is not a list counts as none
		return fmt.Sprintf("%d permissions", len(list))
	}
	return i.Action
}

func (i *intention) line() string {
	return fmt.Sprintf("%s => %s (%s)", i.SourceName, i.DestinationName, i.verdict())
}

// Intention builds `intention`.
func Intention(e *command.Env, c *cobra.Command) {
	command.Group(c, intentionCreate(e), intentionCheck(e), intentionMatch(e), intentionList(e), intentionGet(e),
		intentionDelete(e))
}

func exact(q client.Query, source, destination string) url.Values {
	v := q.Values()
	v.Set("source", source)
	v.Set("destination", destination)
	return v
}

func intentionCreate(e *command.Env) *cobra.Command {
	var allow, deny, file, replace bool
	var metaArgs []string
	var description string
	c := command.Act(e, "create SOURCE DESTINATION", "Allow or deny a service to talk to another",
		command.Between(1, -1, "a source and a destination, or files with --file"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, args []string) error {
			if allow && deny {
				return command.Usagef("--allow and --deny exclude each other")
			}
			meta, err := command.Pairs("meta", metaArgs)
			if err != nil {
				return err
			}
			all, err := intended(e, args, file)
			if err != nil {
				return err
			}
			q := client.Query{Datacenter: d.Q.Datacenter}
			for _, one := range all {
				if !file {
					one.Action, one.Meta, one.Description = "allow", meta, description
					if deny {
						one.Action = "deny"
					}
				}
				if err := putIntention(ctx, cl, q, one, replace); err != nil {
					return err
				}
				if err := e.Printf("Created: %s\n", one.line()); err != nil {
					return err
				}
			}
			return nil
		})
	f := c.Flags()
	f.BoolVar(&allow, "allow", false, "it may; the default")
	f.BoolVar(&deny, "deny", false, "it may not")
	f.BoolVar(&file, "file", false, "the arguments are files with intentions in JSON")
	f.BoolVar(&replace, "replace", false, "replace an existing one")
	f.StringArrayVar(&metaArgs, "meta", nil, "name=value to keep with it (repeat)")
	f.StringVar(&description, "description", "", "description")
	return c
}

// intended reads the intentions of the arguments.
func intended(e *command.Env, args []string, file bool) ([]*intention, error) {
	if !file {
		if len(args) != 2 {
			return nil, command.Usagef("intention create needs a source and a destination")
		}
		return []*intention{{SourceName: args[0], DestinationName: args[1], SourceType: "consul"}}, nil
	}
	var all []*intention
	for _, path := range args {
		text, err := e.FileOrStdin(path)
		if err != nil {
			return nil, err
		}
		one := &intention{SourceType: "consul"}
		if err := json.Unmarshal(text, one); err != nil || one.SourceName == "" || one.DestinationName == "" {
			return nil, fmt.Errorf("%s: is not an intention in JSON with SourceName and DestinationName (%v)", path, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func putIntention(ctx context.Context, cl *client.Client, q client.Query, one *intention, replace bool) error {
	query := exact(q, one.SourceName, one.DestinationName)
	if !replace {
		err := cl.Send(ctx, http.MethodGet, "/v1/connect/intentions/exact", query, nil, nil)
		if err == nil {
			return fmt.Errorf("%s => %s is there already: change it with --replace", one.SourceName, one.DestinationName)
		}
		if !client.IsNotFound(err) {
			return err
		}
	}
	if err := cl.Put(ctx, "/v1/connect/intentions/exact", query, one, nil); err != nil {
		return fmt.Errorf("Error creating intention %s: %w", one.line(), err)
	}
	return nil
}

func intentionCheck(e *command.Env) *cobra.Command {
	return command.Read(e, "check SOURCE DESTINATION", "Check whether a service may talk to another; exit code 2 if not",
		command.Between(2, 2, "a source and a destination"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, args []string) error {
			var out struct{ Allowed bool }
			query := exact(r.Q, args[0], args[1])
			query.Set("source-type", "consul")
			if err := cl.Send(ctx, http.MethodGet, "/v1/connect/intentions/check", query, nil, &out); err != nil {
				return err
			}
			word := "Denied"
			if out.Allowed {
				word = "Allowed"
			}
			err := e.Printf("%s\n", word)
			if r.JSON {
				err = command.WriteJSON(e.Out, out, false)
			}
			if err == nil && !out.Allowed {
				err = command.ExitCode(2)
			}
			return err
		})
}

func intentionMatch(e *command.Env) *cobra.Command {
	var source, destination bool
	c := command.Read(e, "match NAME", "List the intentions that apply to a service, by precedence",
		command.Between(1, 1, "the name of a service"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, args []string) error {
			if source && destination {
				return command.Usagef("--source and --destination exclude each other")
			}
			query := r.Q.Values()
			query.Set("by", "destination")
			if source {
				query.Set("by", "source")
			}
			query.Set("name", args[0])
			var out map[string][]intention
			if err := cl.Send(ctx, http.MethodGet, "/v1/connect/intentions/match", query, nil, &out); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, out, false)
			}
			for _, one := range out[args[0]] {
				e.Say("%s\n", one.line())
			}
			return nil
		})
	c.Flags().BoolVar(&source, "source", false, "intentions with the service as their source")
	c.Flags().BoolVar(&destination, "destination", false, "intentions with the service as their destination; the default")
	return c
}

func intentionList(e *command.Env) *cobra.Command {
	var filter string
	c := command.Read(e, "list", "List all intentions", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			r.Q.Filter = filter
			var all []intention
			if _, err := cl.Get(ctx, "/v1/connect/intentions", r.Q, &all); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, all, false)
			}
			if len(all) == 0 {
				fmt.Fprintln(e.Err, "There are no intentions.")
				return nil
			}
			t := command.Table{Head: []string{"ID", "Source", "Action", "Destination", "Precedence"}}
			for _, i := range all {
				t.Add(i.ID, i.SourceName, i.verdict(), i.DestinationName, fmt.Sprint(i.Precedence))
			}
			return t.Write(e.Out)
		})
	c.Flags().StringVar(&filter, "filter", "", "expression that intentions must match")
	return c
}

// which turns SOURCE DESTINATION, or an old id, into a path and its parameters.
func which(q client.Query, args []string) (string, url.Values) {
	if len(args) == 1 {
		return "/v1/connect/intentions/" + client.Escape(args[0]), q.Values()
	}
	return "/v1/connect/intentions/exact", exact(q, args[0], args[1])
}

func intentionGet(e *command.Env) *cobra.Command {
	return command.Read(e, "get SOURCE DESTINATION", "Show one intention",
		command.Between(1, 2, "a source and a destination, or an id"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, args []string) error {
			path, query := which(r.Q, args)
			var text json.RawMessage
			if err := cl.Send(ctx, http.MethodGet, path, query, nil, &text); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, text, false)
			}
			var i intention
			if err := command.Decode(text, &i); err != nil {
				return err
			}
			f := command.Fields{Width: 14}
			f.Add("Source", i.SourceName)
			f.Add("Destination", i.DestinationName)
			f.Add("Action", i.verdict())
			if i.ID != "" {
				f.Add("ID", i.ID)
			}
			if i.Description != "" {
				f.Add("Description", i.Description)
			}
			for _, k := range command.SortedKeys(i.Meta) {
				f.Add("Meta["+k+"]", i.Meta[k])
			}
			if !i.CreatedAt.IsZero() {
				f.Add("Created At", i.CreatedAt.Local().Format(time.RFC850))
			}
			return f.Write(e.Out)
		})
}

func intentionDelete(e *command.Env) *cobra.Command {
	return command.Act(e, "delete SOURCE DESTINATION", "Delete one intention",
		command.Between(1, 2, "a source and a destination, or an id"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, args []string) error {
			path, query := which(client.Query{Datacenter: d.Q.Datacenter}, args)
			if err := cl.Send(ctx, http.MethodDelete, path, query, nil, nil); err != nil {
				return err
			}
			return e.Printf("Intention deleted.\n")
		})
}
