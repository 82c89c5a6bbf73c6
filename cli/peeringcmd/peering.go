// Package peeringcmd peers clusters from the command line: tokens, their use, and how the peerings stand.
package peeringcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// peer is a peering as the API has it, as far as it is shown.
type peer struct {
	ID                  string
	Name                string
	State               string
	Meta                map[string]string
	PeerID              string
	PeerServerName      string
	PeerServerAddresses []string
	StreamStatus        struct {
		ImportedServices, ExportedServices   []string
		LastHeartbeat, LastReceive, LastSend *time.Time
		Trouble                              string
	}
	Remote                   struct{ Datacenter string }
	CreateIndex, ModifyIndex uint64
}

// Command builds `peering`.
func Command(e *command.Env, c *cobra.Command) {
	command.Group(c, generateToken(e), establish(e), list(e), read(e), remove(e), exportedServices(e))
}

// named adds --name, which all but list need.
func named(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "name", "", "name of the peer, as this cluster calls it")
}

func nameOf(name string) (string, error) {
	if name == "" {
		return "", command.Usagef("--name is missing: the name of the peer, as this cluster calls it")
	}
	return "/v1/peering/" + client.Escape(name), nil
}

func generateToken(e *command.Env) *cobra.Command {
	var name string
	var metaArgs, external []string
	c := command.Read(e, "generate-token", "Make a token by which another cluster becomes a peer",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			if _, err := nameOf(name); err != nil {
				return err
			}
			meta, err := command.Pairs("meta", metaArgs)
			if err != nil {
				return err
			}
			in := struct {
				PeerName                string
				Meta                    map[string]string `json:",omitempty"`
				ServerExternalAddresses []string          `json:",omitempty"`
			}{name, meta, split(external)}
			var out struct{ PeeringToken string }
			if err := cl.Send(ctx, http.MethodPost, "/v1/peering/token", r.Q.Values(), in, &out); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, out, false)
			}
			return e.Printf("%s\n", out.PeeringToken)
		})
	named(c, &name)
	c.Flags().StringArrayVar(&metaArgs, "meta", nil, "name=value to keep with the peering (repeat)")
	c.Flags().StringArrayVar(&external, "server-external-addresses", nil,
		"host:port at which the other cluster reaches these servers, in place of their own (repeat, or with commas)")
	return c
}

// split takes lists apart that were given with commas.
func split(list []string) (out []string) {
	for _, text := range list {
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

func establish(e *command.Env) *cobra.Command {
	var name, token string
	var metaArgs []string
	c := command.Act(e, "establish", "Use a token of another cluster, which becomes a peer",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			if _, err := nameOf(name); err != nil {
				return err
			}
			text, err := e.Input(token)
			if err != nil {
				return err
			}
			if len(text) == 0 {
				return command.Usagef("--peering-token is missing: the token, @FILE, or - for stdin")
			}
			meta, err := command.Pairs("meta", metaArgs)
			if err != nil {
				return err
			}
			in := struct {
				PeerName, PeeringToken string
				Meta                   map[string]string `json:",omitempty"`
			}{name, strings.TrimSpace(string(text)), meta}
			q := client.Query{Datacenter: d.Q.Datacenter}
			if err := cl.Send(ctx, http.MethodPost, "/v1/peering/establish", q.Values(), in, nil); err != nil {
				return err
			}
			return e.Printf("Successfully established peering connection with %s\n", name)
		})
	named(c, &name)
	c.Flags().StringVar(&token, "peering-token", "", "the token, @FILE, or - for stdin")
	c.Flags().StringArrayVar(&metaArgs, "meta", nil, "name=value to keep with the peering (repeat)")
	return c
}

func list(e *command.Env) *cobra.Command {
	return command.Read(e, "list", "List the peers and how they stand", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			var text json.RawMessage
			if err := cl.Send(ctx, http.MethodGet, "/v1/peerings", r.Q.Values(), nil, &text); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, text, false)
			}
			var all []peer
			if err := command.Decode(text, &all); err != nil {
				return err
			}
			if len(all) == 0 {
				fmt.Fprintln(e.Err, "There are no peers.")
				return nil
			}
			t := command.Table{Head: []string{"Name", "State", "Imported Svcs", "Exported Svcs", "Meta"}}
			for _, p := range all {
				t.Add(p.Name, p.State, fmt.Sprint(len(p.StreamStatus.ImportedServices)),
					fmt.Sprint(len(p.StreamStatus.ExportedServices)), metaLine(p.Meta))
			}
			return t.Write(e.Out)
		})
}

func metaLine(meta map[string]string) string {
	var parts []string
	for _, k := range command.SortedKeys(meta) {
		parts = append(parts, k+"="+meta[k])
	}
	return strings.Join(parts, ",")
}

func read(e *command.Env) *cobra.Command {
	var name string
	c := command.Read(e, "read", "Show one peer", command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			path, err := nameOf(name)
			if err != nil {
				return err
			}
			var text json.RawMessage
			if err := cl.Send(ctx, http.MethodGet, path, r.Q.Values(), nil, &text); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, text, false)
			}
			var p peer
			if err := command.Decode(text, &p); err != nil {
				return err
			}
			f := command.Fields{Width: 18}
			f.Add("Name", p.Name)
			f.Add("ID", p.ID)
			f.Add("State", p.State)
			for _, k := range command.SortedKeys(p.Meta) {
				f.Add("Meta["+k+"]", p.Meta[k])
			}
			f.Add("Peer Datacenter", p.Remote.Datacenter)
			f.Add("Peer ID", p.PeerID)
			if p.PeerServerName != "" {
				f.Add("Peer Server Name", p.PeerServerName)
			}
			if len(p.PeerServerAddresses) > 0 {
				f.Add("Peer Addresses", strings.Join(p.PeerServerAddresses, ", "))
			}
			f.Add("Imported Services", strings.Join(p.StreamStatus.ImportedServices, ", "))
			f.Add("Exported Services", strings.Join(p.StreamStatus.ExportedServices, ", "))
			for _, last := range []struct {
				what string
				at   *time.Time
			}{{"Last Heartbeat", p.StreamStatus.LastHeartbeat}, {"Last Receive", p.StreamStatus.LastReceive},
				{"Last Send", p.StreamStatus.LastSend}} {
				if last.at != nil {
					f.Add(last.what, last.at.Local().Format(time.RFC850))
				}
			}
			if p.StreamStatus.Trouble != "" {
				f.Add("Trouble", p.StreamStatus.Trouble)
			}
			return f.Write(e.Out)
		})
	named(c, &name)
	return c
}

func remove(e *command.Env) *cobra.Command {
	var name string
	c := command.Act(e, "delete", "End a peering; what came from the peer is forgotten",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			path, err := nameOf(name)
			if err != nil {
				return err
			}
			q := client.Query{Datacenter: d.Q.Datacenter}
			if err := cl.Send(ctx, http.MethodDelete, path, q.Values(), nil, nil); err != nil {
				return err
			}
			return e.Printf("Successfully submitted peering connection, %s, for deletion\n", name)
		})
	named(c, &name)
	return c
}

func exportedServices(e *command.Env) *cobra.Command {
	var name string
	c := command.Read(e, "exported-services", "List the services that a peer may see",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			path, err := nameOf(name)
			if err != nil {
				return err
			}
			var p peer
			if err := cl.Send(ctx, http.MethodGet, path, r.Q.Values(), nil, &p); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, p.StreamStatus.ExportedServices, false)
			}
			for _, s := range p.StreamStatus.ExportedServices {
				e.Say("%s\n", s)
			}
			return nil
		})
	named(c, &name)
	return c
}
