// Package usagecmd holds the commands of the usage plane: who used how much, why, and what is wrong with it.
package usagecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/kit/errkind"
	"github.com/spf13/cobra"
)

// Command builds usage.
func Command(e *command.Env, c *cobra.Command) {
	command.Group(c, products(e), estimates(e), top(e), tenants(e), explain(e), limits(e), correct(e),
		accuracy(e), send(e), drain(e))
}

// asking is what commands share that ask.
type asking struct {
	command.Dial
	json, watch bool
	every       time.Duration
	values      url.Values
}

func (a *asking) flags(e *command.Env, c *cobra.Command) {
	a.values = url.Values{}
	a.Flags(e, c)
	c.Flags().BoolVar(&a.json, "json", false, "print the server's answer")
	c.Flags().BoolVar(&a.watch, "watch", false, "ask again and again until interrupted")
	c.Flags().DurationVar(&a.every, "interval", 2*time.Second, "how often --watch asks")
}

// text gives c a flag that becomes a parameter of the question.
func (a *asking) text(c *cobra.Command, name, def, usage string) {
	c.Flags().Func(name, usage, func(v string) error { a.values.Set(name, v); return nil })
	if def != "" {
		a.values.Set(name, def)
	}
}

// show asks, and prints what comes: as it is with --json, else by print.
func show[T any](ctx context.Context, e *command.Env, a *asking, path string, print func(io.Writer, T) error) error {
	cl, err := a.Client()
	if err != nil {
		return err
	}
	if a.watch {
		var stop context.CancelFunc
		ctx, stop = command.Signals(ctx)
		defer stop()
	}
	for {
		raw, missing, err := get(ctx, cl, path, a.values)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if a.json {
			if err := command.WriteJSON(e.Out, raw, a.watch); err != nil {
				return err
			}
		} else {
			var out T
			if err := command.Decode(raw, &out); err != nil {
				return err
			}
			if err := print(e.Out, out); err != nil {
				return err
			}
		}
		if missing != "" {
			_, _ = fmt.Fprintln(e.Err, "Missing:", missing) // a note beside the answer
		}
		if !a.watch {
			return nil
		}
		if command.Wait(ctx, a.every); ctx.Err() != nil {
			return nil
		}
		if !a.json {
			if err := e.Printf("\n"); err != nil {
				return err
			}
		}
	}
}

// getTimeout bounds a question.
const getTimeout = time.Minute

// get asks once. missing is what a list may lack, as the server says.
func get(ctx context.Context, cl *client.Client, path string, values url.Values,
) (raw json.RawMessage, missing string, err error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	resp, err := cl.Do(ctx, http.MethodGet, path, values, nil)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if raw, err = io.ReadAll(resp.Body); err != nil {
		return nil, "", errkind.E(errkind.Unavailable, "read the answer to "+path, err)
	}
	missing = resp.Header.Get("Usage-Missing")
	if text, err := strconv.Unquote(missing); err == nil {
		missing = text
	}
	return raw, missing, nil
}

func shortTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// product is a definition, as far as it is printed.
type product struct {
	Name, Kind, Unit string
	Identity, Tags   []string
	Windows          []string
	Generation       int
}

func products(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "products", Short: "List what is counted, define a product, delete one",
		Args: command.Between(0, 0, "no arguments")}
	a.flags(e, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return show(c.Context(), e, &a, "/v1/usage/products", func(w io.Writer, list []product) error {
			t := command.Table{Head: []string{"Product", "Kind", "Identity", "Tags", "Unit", "Windows"}}
			for _, p := range list {
				t.Add(p.Name, p.Kind, strings.Join(p.Identity, ","), strings.Join(p.Tags, ","), p.Unit,
					strings.Join(p.Windows, ","))
			}
			return t.Write(w)
		})
	}
	define := command.Act(e, "define NAME DEFINITION", "Define a product: JSON, @file, or - for stdin",
		command.Between(2, 2, "a name and a definition"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			return put(ctx, e, cl, "/v1/usage/products/"+args[0], args[1])
		})
	var keep bool
	remove := command.Act(e, "delete NAME", "Delete a product", command.Between(1, 1, "a name"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			v := url.Values{}
			if keep {
				v.Set("keep-data", "")
			}
			return cl.Send(ctx, http.MethodDelete, "/v1/usage/products/"+args[0], v, nil, nil)
		})
	remove.Flags().BoolVar(&keep, "keep-data", false, "tell what was counted until its windows have passed")
	c.AddCommand(define, remove)
	return c
}

// put sends a definition as it is.
func put(ctx context.Context, e *command.Env, cl *client.Client, path, arg string) error {
	text, err := e.Input(arg)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := cl.Send(ctx, http.MethodPut, path, nil, json.RawMessage(text), &raw); err != nil {
		return err
	}
	return command.WriteJSON(e.Out, raw, false)
}

func tenants(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "tenants", Short: "List whose usage is counted", Args: command.Between(0, 0, "no arguments")}
	a.flags(e, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		type tenant struct {
			Name, TZ string
			Products []string
		}
		return show(c.Context(), e, &a, "/v1/usage/tenants", func(w io.Writer, list []tenant) error {
			t := command.Table{Head: []string{"Tenant", "Time zone", "Products"}}
			for _, row := range list {
				t.Add(row.Name, row.TZ, strings.Join(row.Products, ","))
			}
			return t.Write(w)
		})
	}
	zone := command.Act(e, "zone TENANT ZONE", "Set the calendar of a tenant: a name like Europe/Berlin",
		command.Between(2, 2, "a tenant and a time zone"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			return cl.Put(ctx, "/v1/usage/tenants/"+url.PathEscape(args[0]), nil, map[string]string{"tz": args[1]}, nil)
		})
	c.AddCommand(zone)
	return c
}

// contributor is a row of top.
type contributor struct {
	Tenant, Tag string
	Other       bool
	Value       json.Number
}

func (c *contributor) name(by string) string {
	switch {
	case c.Other:
		return "(other)"
	case by == "" || by == "tenant":
		return c.Tenant
	case c.Tag == "":
		return "(none)"
	}
	return c.Tag
}

func top(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "top [PRODUCT]", Short: "Who used most: of each product, or of one",
		Args: command.Between(0, 1, "at most one product")}
	a.flags(e, c)
	a.text(c, "window", "1h", "5m, 1h, 24h, hour, day or month (default 1h)")
	a.text(c, "by", "", "a tag of the product, in place of tenants")
	a.text(c, "tenant", "", "with --by: whose usage (default \"default\")")
	a.text(c, "limit", "10", "how many rows (default 10)")
	c.RunE = func(c *cobra.Command, args []string) error {
		trends := e.Trends(a.watch)
		if len(args) == 0 {
			type row struct {
				Product, Unit string
				Top           []contributor
			}
			return show(c.Context(), e, &a, "/v1/usage/top", func(w io.Writer, list []row) error {
				t := command.Table{Head: trends.Head("Product", "Who", "Usage", "Unit")}
				for _, p := range list {
					for i, who := range p.Top {
						name := p.Product
						if i > 0 {
							name = ""
						}
						t.Add(trends.Row([]string{name, who.name(""), who.Value.String(), p.Unit},
							trends.Add(p.Product+"\x00"+who.name(""), float(who.Value)))...)
					}
				}
				return t.Write(w)
			})
		}
		a.values.Set("product", args[0])
		return show(c.Context(), e, &a, "/v1/usage/top", func(w io.Writer, list []contributor) error {
			if len(list) == 0 {
				_, _ = fmt.Fprintln(e.Err, nobody(a.values)) // a note beside the answer
			}
			t := command.Table{Head: trends.Head("Who", "Usage")}
			for _, who := range list {
				name := who.name(a.values.Get("by"))
				t.Add(trends.Row([]string{name, who.Value.String()}, trends.Add(name, float(who.Value)))...)
			}
			return t.Write(w)
		})
	}
	return c
}

// nobody says why a list of contributors may be empty.
func nobody(asked url.Values) string {
	window := asked.Get("window")
	within := "within " + window
	if window == "hour" || window == "day" || window == "month" {
		within = "this " + window
	}
	text, hints := fmt.Sprintf("Nobody used %s %s", asked.Get("product"), within), []string{}
	if asked.Get("by") != "" {
		text = fmt.Sprintf("Tenant %s used no %s %s", cmp.Or(asked.Get("tenant"), "default"), asked.Get("product"), within)
		hints = append(hints, "--tenant names another one of `corbel usage tenants`")
	}
	if window != "month" {
		hints = append(hints, "--window month looks further back")
	}
	if len(hints) > 0 {
		text += ": " + strings.Join(hints, ", and ")
	}
	return text + "."
}

func explain(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "explain ID", Short: "Where one event is: stored, counted in which windows, or why not",
		Args: command.Between(1, 1, "the id of an event")}
	a.flags(e, c)
	a.text(c, "tenant", "", "whose event it is (default \"default\")")
	a.text(c, "source", "", "its source")
	c.RunE = func(c *cobra.Command, args []string) error {
		a.values.Set("id", args[0])
		type fate struct {
			Received     time.Time
			Product, Why string
			Counted      bool
			Offset       uint64
			Shard        int
			Owner        string
			Windows      []struct {
				Window, State string
				From, To      time.Time
			}
		}
		return show(c.Context(), e, &a, "/v1/usage/explain", func(w io.Writer, f fate) error {
			out := command.Fields{Width: 12}
			out.Add("Received", f.Received.Format(time.RFC3339Nano))
			if f.Product != "" {
				out.Add("Product", f.Product)
			}
			if !f.Counted {
				out.Add("Not counted", f.Why)
				return out.Write(w)
			}
			out.Add("Stored", fmt.Sprintf("at %d of the log", f.Offset))
			out.Add("Counted", fmt.Sprintf("in shard %d by %s", f.Shard, f.Owner))
			for _, r := range f.Windows {
				out.Add("  "+r.Window, fmt.Sprintf("%s to %s, %s", shortTime(r.From), shortTime(r.To), r.State))
			}
			return out.Write(w)
		})
	}
	return c
}

func accuracy(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "accuracy", Short: "Measure how far sketches are off, against an exact count of a sample",
		Args: command.Between(0, 0, "no arguments")}
	a.flags(e, c)
	a.text(c, "product", "", "only this product")
	a.text(c, "sample", "", "one in so many tenants (default 1)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		type report struct {
			Within  int
			Worst   float64
			Missing []string
			Series  []struct {
				Tenant, Product string
				Exact           uint64
				Estimate        json.Number
				Error           float64
				Within          bool
				Bound           struct{ Method string }
			}
		}
		return show(c.Context(), e, &a, "/v1/usage/accuracy", func(w io.Writer, r report) error {
			t := command.Table{Head: []string{"Tenant", "Product", "Exact", "Estimate", "Error", "Within its bound",
				"Method"}}
			for _, s := range r.Series {
				within := "yes"
				if !s.Within {
					within = "no"
				}
				t.Add(s.Tenant, s.Product, fmt.Sprint(s.Exact), s.Estimate.String(), fmt.Sprintf("%.3f %%", s.Error*100),
					within, s.Bound.Method)
			}
			if err := t.Write(w); err != nil {
				return err
			}
			for _, m := range r.Missing {
				_, _ = fmt.Fprintln(w, "Left out:", m) // what follows says whether it could be written
			}
			_, err := fmt.Fprintf(w, "%d of %d series within their bound, worst error %.3f %%\n", r.Within, len(r.Series),
				r.Worst*100)
			return err
		})
	}
	return c
}

func send(e *command.Env) *cobra.Command {
	return command.Act(e, "send EVENTS", "Send events: JSON, @file, or - for stdin",
		command.Between(1, 1, "events"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			text, err := e.Input(args[0])
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := cl.Send(ctx, http.MethodPost, "/v1/usage/events", nil, json.RawMessage(text), &raw); err != nil {
				return err
			}
			return command.WriteJSON(e.Out, raw, false)
		})
}
