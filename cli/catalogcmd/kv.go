package catalogcmd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// KV builds kv.
func KV(e *command.Env, c *cobra.Command) {
	c.Long = "Read and write the key-value store.\n\n  corbel kv put web/config/limit 100\n  corbel kv get " +
		"web/config/limit\n  corbel kv list web/\n  corbel kv delete --recurse web/"
	command.Group(c, kvGet(e), kvPut(e), kvDelete(e), kvList(e), kvExport(e), kvImport(e))
	if e.Consul {
		c.Long = "" // its examples are of the other command line
	}
}

func kvGet(e *command.Env) *cobra.Command {
	var r command.Reading
	var raw, detailed, recurse, keys, asBase64 bool
	var separator string
	c := &cobra.Command{Use: "get KEY", Short: "Read a key, or all under a prefix with --recurse",
		Args: command.Between(0, 1, "one key")}
	r.Flags(e, c, true)
	r.CompleteKeys(c)
	f := c.Flags()
	f.BoolVar(&raw, "raw", false, "print only the raw value")
	f.BoolVar(&detailed, "detailed", false, "also print flags, session and indexes")
	f.BoolVar(&recurse, "recurse", false, "read all keys under the prefix")
	f.BoolVar(&keys, "keys", false, "list names only")
	f.BoolVar(&asBase64, "base64", false, "print values in base64")
	f.StringVar(&separator, "separator", "/", "with --keys, cut names at the first of these after the prefix")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && !recurse && !keys {
			return command.Usagef("%s needs one key, or --recurse or --keys for all", c.CommandPath())
		}
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := r.Client()
		if err != nil {
			return err
		}
		key := command.CleanKey(strings.Join(args, ""))
		text := func(v []byte) string {
			if asBase64 {
				return base64.StdEncoding.EncodeToString(v)
			}
			return string(v)
		}
		trends := e.Trends(r.Watch && !e.Consul)
		switch {
		case keys:
			return showKeys(ctx, e, &r, cl, key, separator, keyNames(false, trends))
		case recurse:
			read := func(ctx context.Context, q client.Query) ([]client.KVPair, client.Meta, error) {
				return cl.KV().List(ctx, key, q)
			}
			return command.Show(ctx, e, &r, r.Q, read, func(w io.Writer, pairs []client.KVPair) error {
				return writePairs(w, pairs, detailed, text, trends)
			})
		}
		read := func(ctx context.Context, q client.Query) (*client.KVPair, client.Meta, error) {
			p, meta, err := cl.KV().Get(ctx, key, q)
			if err == nil && p == nil && !r.Watch {
				err = errors.New(e.Words("no key exists at "+key+"; see `corbel kv list`", "No key exists at: "+key))
			}
			return p, meta, err
		}
		return command.Show(ctx, e, &r, r.Q, read, func(w io.Writer, p *client.KVPair) error {
			switch {
			case p == nil:
				_, err := fmt.Fprintln(w, "(no such key)")
				return err
			case raw:
				_, err := w.Write(p.Value)
				return err
			case detailed:
				return writePair(w, p, text)
			}
			_, err := fmt.Fprintln(w, withTrend(trends, p, text(p.Value)))
			return err
		})
	}
	return c
}

// withTrend is the text of a key's value; where trends are drawn, with that of a value that is a number.
func withTrend(trends *command.Trends, p *client.KVPair, text string) string {
	n, err := strconv.ParseFloat(strings.TrimSpace(string(p.Value)), 64)
	if trends == nil || err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return text
	}
	return trends.Beside(strings.TrimSpace(text), p.Key, n)
}

func writePairs(w io.Writer, pairs []client.KVPair, detailed bool, text func([]byte) string,
	trends *command.Trends) error {
	for i := range pairs {
		if detailed {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := writePair(w, &pairs[i], text); err != nil {
				return err
			}
		} else if _, err := fmt.Fprintf(w, "%s:%s\n", pairs[i].Key,
			withTrend(trends, &pairs[i], text(pairs[i].Value))); err != nil {
			return err
		}
	}
	return nil
}

func writePair(w io.Writer, p *client.KVPair, text func([]byte) string) error {
	session := p.Session
	if session == "" {
		session = "-"
	}
	_, err := fmt.Fprintf(w, "CreateIndex      %d\nFlags            %d\nKey              %s\nLockIndex        "+
		"%d\nModifyIndex      %d\nSession          %s\nValue            %s\n",
		p.CreateIndex, p.Flags, p.Key, p.LockIndex, p.ModifyIndex, session, text(p.Value))
	return err
}

// keyNames prints the names of keys, or how many they are; where trends are drawn, that is said below the names too.
func keyNames(count bool, trends *command.Trends) func(io.Writer, []string) error {
	return func(w io.Writer, keys []string) error {
		if count {
			_, err := fmt.Fprintln(w, trends.Beside(strconv.Itoa(len(keys)), "", float64(len(keys))))
			return err
		}
		for _, k := range keys {
			if _, err := fmt.Fprintln(w, k); err != nil {
				return err
			}
		}
		if trends == nil {
			return nil
		}
		_, err := fmt.Fprintln(w, trends.Beside(fmt.Sprintf("%d keys", len(keys)), "", float64(len(keys))))
		return err
	}
}

func showKeys(ctx context.Context, e *command.Env, r *command.Reading, cl *client.Client, prefix, separator string,
	show func(io.Writer, []string) error) error {
	read := func(ctx context.Context, q client.Query) ([]string, client.Meta, error) {
		keys, meta, err := cl.KV().Keys(ctx, prefix, separator, q)
		if keys == nil {
			keys = []string{}
		}
		return keys, meta, err
	}
	return command.Show(ctx, e, r, r.Q, read, show)
}

func kvList(e *command.Env) *cobra.Command {
	var r command.Reading
	var separator string
	var count bool
	c := &cobra.Command{Use: "list [PREFIX]", Short: "List the names of keys",
		Args: command.Between(0, 1, "at most one prefix")}
	r.Flags(e, c, true)
	r.CompleteKeys(c)
	c.Flags().StringVar(&separator, "separator", "", "cut names at the first separator after the prefix, like folders")
	c.Flags().BoolVar(&count, "count", false, "print how many there are, not their names")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		cl, err := r.Client()
		if err != nil {
			return err
		}
		return showKeys(ctx, e, &r, cl, command.CleanKey(strings.Join(args, "")), separator,
			keyNames(count, e.Trends(r.Watch && !e.Consul)))
	}
	return c
}

// casFlag is --cas: alone it uses --modify-index, with a value it is the index.
type casFlag struct {
	cas   string
	index uint64
}

func (f *casFlag) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.cas, "cas", "", "only if the key's ModifyIndex is this (0: only if there is no such key)")
	c.Flags().Lookup("cas").NoOptDefVal = "modify-index"
	c.Flags().Uint64Var(&f.index, "modify-index", 0, "index for a --cas without a value")
}

func (f *casFlag) value(c *cobra.Command) (*uint64, error) {
	if !c.Flags().Changed("cas") || f.cas == "false" {
		return nil, nil
	}
	if f.cas == "modify-index" || f.cas == "true" {
		return &f.index, nil
	}
	n, err := strconv.ParseUint(f.cas, 10, 64)
	if err != nil {
		return nil, command.Usagef("--cas=%s is not an index", f.cas)
	}
	return &n, nil
}

func kvPut(e *command.Env) *cobra.Command {
	var d command.Dial
	var cas casFlag
	var w client.KVWrite
	var session string
	var acquire, release, fromBase64 bool
	c := &cobra.Command{Use: "put KEY [VALUE]", Short: "Write a key; the value may be @file or - for stdin",
		Args: command.Between(1, 2, "a key and a value")}
	d.Flags(e, c)
	d.CompleteKeys(c)
	cas.flags(c)
	f := c.Flags()
	f.Uint64Var(&w.Flags, "flags", 0, "number to keep with the value")
	f.StringVar(&session, "session", "", "session for --acquire and --release")
	f.BoolVar(&acquire, "acquire", false, "lock the key for the session")
	f.BoolVar(&release, "release", false, "unlock the key of the session")
	f.BoolVar(&fromBase64, "base64", false, "the value is in base64")
	c.RunE = func(c *cobra.Command, args []string) error {
		if (acquire || release) && session == "" {
			return command.Usagef("--acquire and --release need --session")
		}
		var err error
		if w.CAS, err = cas.value(c); err != nil {
			return err
		}
		if acquire {
			w.Acquire = session
		}
		if release {
			w.Release = session
		}
		value := []byte{}
		if len(args) == 2 {
			if value, err = e.Input(args[1]); err != nil {
				return err
			}
		}
		if fromBase64 {
			if value, err = base64.StdEncoding.DecodeString(strings.TrimSpace(string(value))); err != nil {
				return command.Usagef("the value is not base64: %v", err)
			}
		}
		cl, err := d.Client()
		if err != nil {
			return err
		}
		key := command.CleanKey(args[0])
		ok, err := cl.KV().Put(c.Context(), key, value, w)
		switch {
		case err != nil:
			return err
		case ok && acquire:
			return e.Printf("Success! Lock acquired on: %s\n", key)
		case ok && release:
			return e.Printf("Success! Lock released on: %s\n", key)
		case ok:
			return e.Printf("Success! Data written to: %s\n", key)
		case w.CAS != nil:
			return fmt.Errorf("Did not write to %s: its ModifyIndex is not %d; see `%s kv get -detailed %s`", key, *w.CAS,
				e.Program(), key)
		case acquire:
			return fmt.Errorf("Did not lock %s: another session holds it, or its lock-delay is not over", key)
		}
		return fmt.Errorf("Did not release %s: the session does not hold it", key)
	}
	return c
}

func kvDelete(e *command.Env) *cobra.Command {
	var d command.Dial
	var cas casFlag
	var recurse bool
	c := &cobra.Command{Use: "delete KEY", Short: "Delete a key, or all under a prefix with --recurse",
		Args: command.Between(1, 1, "one key")}
	d.Flags(e, c)
	d.CompleteKeys(c)
	cas.flags(c)
	c.Flags().BoolVar(&recurse, "recurse", false, "delete all keys under the prefix")
	c.RunE = func(c *cobra.Command, args []string) error {
		index, err := cas.value(c)
		if err != nil {
			return err
		}
		if recurse && index != nil {
			return command.Usagef("--recurse and --cas exclude each other")
		}
		key := command.CleanKey(args[0])
		if key == "" && !recurse {
			return command.Usagef("an empty key stands for all keys: add --recurse if that is meant")
		}
		cl, err := d.Client()
		if err != nil {
			return err
		}
		ok, err := cl.KV().Delete(c.Context(), key, recurse, index)
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("Did not delete %s: its ModifyIndex is not %d; see `%s kv get -detailed %s`", key, *index,
				e.Program(), key)
		case recurse:
			_, err = fmt.Fprintf(e.Out, "Success! Deleted keys with prefix: %s\n", key)
		default:
			_, err = fmt.Fprintf(e.Out, "Success! Deleted key: %s\n", key)
		}
		return err
	}
	return c
}

// exported is one key in an export file.
type exported struct {
	Key   string `json:"key"`
	Flags uint64 `json:"flags"`
	Value string `json:"value"` // base64
}

func kvExport(e *command.Env) *cobra.Command {
	var d command.Dial
	c := &cobra.Command{Use: "export [PREFIX]", Short: "Write keys as JSON that import reads",
		Args: command.Between(0, 1, "at most one prefix")}
	d.Flags(e, c)
	d.CompleteKeys(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, err := d.Client()
		if err != nil {
			return err
		}
		pairs, _, err := cl.KV().List(c.Context(), command.CleanKey(strings.Join(args, "")), d.Q)
		if err != nil {
			return err
		}
		out := make([]exported, len(pairs))
		for i, p := range pairs {
			out[i] = exported{Key: p.Key, Flags: p.Flags, Value: base64.StdEncoding.EncodeToString(p.Value)}
		}
		enc := json.NewEncoder(e.Out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "\t")
		return enc.Encode(out)
	}
	return c
}

func kvImport(e *command.Env) *cobra.Command {
	var d command.Dial
	var prefix string
	c := &cobra.Command{Use: "import DATA", Short: "Write keys from JSON: @file, - for stdin, or the text itself",
		Args: command.Between(1, 1, "data: @file, - or JSON")}
	d.Flags(e, c)
	c.Flags().StringVar(&prefix, "prefix", "", "prefix for each key")
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := e.Input(args[0])
		if err != nil {
			return err
		}
		var in []exported
		if err := json.Unmarshal(text, &in); err != nil {
			return fmt.Errorf("the data is not what `kv export` writes: %w", err)
		}
		values := make([][]byte, len(in))
		for i, x := range in { // all or nothing as far as it can be known before
			if values[i], err = base64.StdEncoding.DecodeString(x.Value); err != nil || x.Key == "" {
				return errors.Join(fmt.Errorf("entry %d (%q) needs a key and a value in base64", i+1, x.Key), err)
			}
		}
		cl, err := d.Client()
		if err != nil {
			return err
		}
		progress := e.Progress("kv import", "keys", int64(len(in)))
		defer progress.End()
		for i, x := range in {
			progress.Add(1)
			key := prefix + command.CleanKey(x.Key)
			if _, err := cl.KV().Put(c.Context(), key, values[i], client.KVWrite{Flags: x.Flags}); err != nil {
				return fmt.Errorf("after %d of %d keys, %s: %w", i, len(in), key, err)
			}
			fmt.Fprintf(e.Out, "Imported: %s\n", key)
		}
		return nil
	}
	return c
}
