package usagecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// estimate is an answer, as far as it is printed.
type estimate struct {
	Tenant, Product, Unit string
	From, To              time.Time
	AsOf                  time.Time `json:"as_of"`
	Value                 *json.Number
	Error                 struct {
		Relative  float64
		Low, High *json.Number
		Method    string
	}
	Completeness struct {
		Ratio     float64
		OpenUntil *time.Time `json:"open_until"`
		Missing   []string
	}
	By []struct {
		Tag   string
		Other bool
		Value json.Number
	}
	Series []struct {
		Time  time.Time
		Value json.Number
	}
	Closed    *json.Number
	Revisions []struct {
		At         time.Time
		Value      json.Number
		Correction string
		Reason     string
	}
}

func estimates(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "estimates PRODUCT", Short: "How much was used, with its bound, by tag and over time",
		Args: command.Between(1, 1, "a product")}
	a.flags(e, c)
	a.text(c, "tenant", "", "whose usage (default \"default\")")
	a.text(c, "window", "", "5m, 1h, 24h, hour, day or month (default 1h)")
	a.text(c, "from", "", "in place of a window: RFC 3339, or local to --tz")
	a.text(c, "to", "", "the end of that range (default now)")
	a.text(c, "by", "", "break down by a tag of the product")
	a.text(c, "step", "", "plot a series of steps: 1m, 5m, 1h, day, month")
	a.text(c, "tz", "", "calendar, such as Europe/Berlin (default the tenant's)")
	c.RunE = func(c *cobra.Command, args []string) error {
		a.values.Set("product", args[0])
		trends := e.Trends(a.watch)
		return show(c.Context(), e, &a, "/v1/usage/estimates", func(w io.Writer, out estimate) error {
			return out.write(w, trends)
		})
	}
	return c
}

func (x *estimate) write(w io.Writer, trends *command.Trends) error {
	f := command.Fields{Width: 14}
	if x.Tenant != "" {
		f.Add("Tenant", x.Tenant)
	}
	f.Add("Usage", strings.TrimSpace(text(x.Value)+" "+x.Unit))
	if x.Value != nil {
		if line := trends.Add("", float(*x.Value)); line != "" {
			f.Add("Trend", line)
		}
	}
	if x.Error.Method == "sketch" {
		f.Add("Bound", fmt.Sprintf("%s to %s in 99 %% of cases (standard error %.2f %%)", text(x.Error.Low),
			text(x.Error.High), x.Error.Relative*100))
	} else {
		f.Add("Bound", "exact")
	}
	f.Add("From", x.From.Format(time.RFC3339))
	f.Add("To", x.To.Format(time.RFC3339))
	f.Add("As of", x.AsOf.UTC().Format(time.RFC3339))
	if x.Completeness.OpenUntil != nil {
		f.Add("Open until", x.Completeness.OpenUntil.Format(time.RFC3339))
	}
	for _, m := range x.Completeness.Missing {
		f.Add("Missing", m)
	}
	if x.Closed != nil {
		f.Add("Closed with", x.Closed.String())
	}
	for _, r := range x.Revisions {
		f.Add("Corrected", fmt.Sprintf("to %s at %s by %s: %s", r.Value, shortTime(r.At), r.Correction, r.Reason))
	}
	if err := f.Write(w); err != nil {
		return err
	}
	if len(x.By) > 0 {
		t := command.Table{Head: trends.Head("Value", "Usage")}
		for _, row := range x.By {
			name := row.Tag
			if row.Other {
				name = "(other)"
			} else if name == "" {
				name = "(none)"
			}
			t.Add(trends.Row([]string{name, row.Value.String()}, trends.Add("by "+name, float(row.Value)))...)
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	if len(x.Series) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w)
	if err == nil {
		err = x.plot(w)
	}
	return err
}

func text(n *json.Number) string {
	if n == nil {
		return "-"
	}
	return n.String()
}

// float is a number as near as a plot shows it.
func float(n json.Number) float64 {
	f, _ := n.Float64() // what is too large is the largest
	return f
}

// plotWidth is the columns of the longest bar.
const plotWidth = 50

// bars are eighths of a column.
var bars = []rune(" ▏▎▍▌▋▊▉█")

// plot draws a bar for each step that has something.
func (x *estimate) plot(w io.Writer) error {
	most := new(big.Float)
	values := make([]*big.Float, len(x.Series))
	for i, p := range x.Series {
		v, _, err := big.ParseFloat(p.Value.String(), 10, 128, big.ToNearestEven)
		if err != nil {
			v = new(big.Float)
		}
		if values[i] = v; v.Cmp(most) > 0 {
			most = v
		}
	}
	for i, p := range x.Series {
		eighths := 0
		if most.Sign() > 0 && values[i].Sign() > 0 {
			part, _ := new(big.Float).Quo(values[i], most).Float64()
			eighths = int(part*plotWidth*8 + 0.5)
		}
		bar := strings.Repeat(string(bars[8]), eighths/8)
		if rest := eighths % 8; rest > 0 {
			bar += string(bars[rest])
		}
		if _, err := fmt.Fprintf(w, "%s  %-*s %s\n", shortTime(p.Time), plotWidth, bar, p.Value); err != nil {
			return err
		}
	}
	return nil
}

func limits(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "limits", Short: "List limits with what is used of them, set one, delete one",
		Args: command.Between(0, 0, "no arguments")}
	a.flags(e, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		type limit struct {
			Name, Tenant, Product, Window string
			Value                         json.Number
			Now                           *json.Number
			Crossed                       []float64
			Forecast                      *time.Time
		}
		trends := e.Trends(a.watch)
		return show(c.Context(), e, &a, "/v1/usage/limits", func(w io.Writer, list []limit) error {
			t := command.Table{Head: trends.Head("Limit", "Tenant", "Product", "Window", "Used", "Of", "Crossed",
				"Reached by")}
			for _, l := range list {
				var crossed []string
				for _, at := range l.Crossed {
					crossed = append(crossed, fmt.Sprintf("%g %%", at*100))
				}
				by := "-"
				if l.Forecast != nil {
					by = shortTime(*l.Forecast)
				}
				row, trend := []string{l.Name, l.Tenant, l.Product, l.Window, text(l.Now), l.Value.String(),
					strings.Join(crossed, ", "), by}, ""
				if l.Now != nil {
					trend = trends.Add(l.Name, float(*l.Now))
				}
				t.Add(trends.Row(row, trend)...)
			}
			return t.Write(w)
		})
	}
	set := command.Act(e, "set NAME LIMIT", "Set a limit: JSON, @file, or - for stdin",
		command.Between(2, 2, "a name and a limit"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			return put(ctx, e, cl, "/v1/usage/limits/"+args[0], args[1])
		})
	remove := command.Act(e, "delete NAME", "Delete a limit", command.Between(1, 1, "a name"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			return cl.Send(ctx, http.MethodDelete, "/v1/usage/limits/"+args[0], nil, nil, nil)
		})
	c.AddCommand(set, remove, history(e))
	return c
}

func history(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "history NAME", Short: "When a limit was crossed", Args: command.Between(1, 1, "a name")}
	a.flags(e, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		type crossing struct {
			At, From, To time.Time
			Threshold    float64
			Value, Limit json.Number
		}
		return show(c.Context(), e, &a, "/v1/usage/limits/"+args[0]+"/history", func(w io.Writer, list []crossing) error {
			t := command.Table{Head: []string{"At", "Threshold", "Used", "Of", "Window from", "To"}}
			for _, x := range list {
				t.Add(x.At.UTC().Format(time.RFC3339), fmt.Sprintf("%g %%", x.Threshold*100), x.Value.String(),
					x.Limit.String(), shortTime(x.From), shortTime(x.To))
			}
			return t.Write(w)
		})
	}
	return c
}

// correction is one, as far as it is printed.
type correction struct {
	ID, Kind, Tenant, Product, Reason, Status, Error string
	At                                               time.Time
}

func correct(e *command.Env) *cobra.Command {
	c := command.Act(e, "correct CORRECTION", "Take events out, replace them, or count a range again: JSON, @file, or - "+
		"for stdin", command.Between(1, 1, "a correction"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			text, err := e.Input(args[0])
			if err != nil {
				return err
			}
			var made struct{ ID string }
			if err := cl.Send(ctx, http.MethodPost, "/v1/usage/corrections", nil, json.RawMessage(text), &made); err != nil {
				return err
			}
			for {
				var out correction
				if err := cl.Send(ctx, http.MethodGet, "/v1/usage/corrections/"+made.ID, nil, nil, &out); err != nil {
					return err
				}
				switch {
				case out.Status == "failed":
					return fmt.Errorf("correction %s: %s", made.ID, out.Error)
				case out.Status == "done" || ctx.Err() != nil:
					return e.Printf("Correction %s is %s\n", made.ID, out.Status)
				}
				command.Wait(ctx, 200*time.Millisecond)
			}
		})
	c.AddCommand(corrections(e))
	return c
}

func corrections(e *command.Env) *cobra.Command {
	var a asking
	c := &cobra.Command{Use: "list", Short: "List corrections, and events that came too late",
		Args: command.Between(0, 0, "no arguments")}
	a.flags(e, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		type answer struct {
			Corrections []correction
			Late        []struct {
				Tenant, Product, Source, ID string
				Time, Received              time.Time
			}
		}
		return show(c.Context(), e, &a, "/v1/usage/corrections", func(w io.Writer, out answer) error {
			t := command.Table{Head: []string{"Correction", "Kind", "Tenant", "Product", "At", "Status", "Reason"}}
			for _, x := range out.Corrections {
				t.Add(x.ID, x.Kind, x.Tenant, x.Product, shortTime(x.At), strings.TrimSpace(x.Status+" "+x.Error), x.Reason)
			}
			if err := t.Write(w); err != nil || len(out.Late) == 0 {
				return err
			}
			late := command.Table{Head: []string{"Late", "Source", "Tenant", "Product", "Time", "Received"}}
			for _, x := range out.Late {
				late.Add(x.ID, x.Source, x.Tenant, x.Product, shortTime(x.Time), shortTime(x.Received))
			}
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
			return late.Write(w)
		})
	}
	return c
}
