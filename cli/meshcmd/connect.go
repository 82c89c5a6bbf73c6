package meshcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"corbel.dev/corbel/node/config"
	"github.com/spf13/cobra"
)

// Connect builds `connect`.
func Connect(e *command.Env, c *cobra.Command) {
	command.Group(c,
		command.Named("ca", "The mesh's certificate authority", caGet(e), caSet(e)),
		envoy(e), expose(e), proxy(e), redirectTraffic(e))
}

func caGet(e *command.Env) *cobra.Command {
	return command.Read(e, "get-config", "Show the authority's settings", command.Between(0, 0, "no arguments"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			var text json.RawMessage
			if _, err := cl.Get(ctx, "/v1/connect/ca/configuration", r.Q, &text); err != nil {
				return err
			}
			return writeTabbed(e, text)
		})
}

func caSet(e *command.Env) *cobra.Command {
	var file string
	var force bool
	c := command.Act(e, "set-config", "Change the authority's settings; certificates follow by themselves",
		command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			if file == "" {
				return command.Usagef("give the settings with --config-file; see them with `connect ca get-config`")
			}
			text, err := e.FileOrStdin(file)
			if err != nil {
				return err
			}
			settings, err := config.ReadObject(file, text)
			if err != nil {
				return err
			}
			if force {
				settings["ForceWithoutCrossSigning"] = true
			}
			q := client.Query{Datacenter: d.Q.Datacenter}
			if err := cl.Put(ctx, "/v1/connect/ca/configuration", q.Values(), settings, nil); err != nil {
				return err
			}
			return e.Printf("Configuration updated!\n")
		})
	c.Flags().StringVar(&file, "config-file", "", "file with the settings, HCL or JSON; - is stdin")
	c.Flags().BoolVar(&force, "force-without-cross-signing", false,
		"change the root also when the old one cannot sign the new: connections break for a moment")
	return c
}

// exposing are the flags of expose.
type exposing struct {
	gateway, service, protocol string
	port                       int
	hosts                      []string
}

// expose opens a service at an ingress gateway and lets the gateway reach it.
func expose(e *command.Env) *cobra.Command {
	var x exposing
	c := command.Act(e, "expose", "Open a service at an ingress gateway", command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			if x.gateway == "" || x.service == "" || x.port == 0 {
				return command.Usagef("expose needs --ingress-gateway, --service and --port")
			}
			q := client.Query{Datacenter: d.Q.Datacenter}
			entry := map[string]any{"Kind": "ingress-gateway", "Name": x.gateway}
			path := "/v1/config/ingress-gateway/" + client.Escape(x.gateway)
			if _, err := cl.Get(ctx, path, q, &entry); err != nil && !client.IsNotFound(err) {
				return err
			}
			if err := x.add(entry); err != nil {
				return err
			}
			var ok bool
			values := q.Values()
			if index, has := entry["ModifyIndex"]; has {
				values.Set("cas", fmt.Sprintf("%.0f", index))
			} else {
				values.Set("cas", "0")
			}
			if err := cl.Put(ctx, "/v1/config", values, entry, &ok); err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("somebody changed the gateway %s meanwhile: try again", x.gateway)
			}
			if err := e.Printf("Successfully updated config entry for ingress service %q\n", x.gateway); err != nil {
				return err
			}
			one := &intention{SourceName: x.gateway, DestinationName: x.service, SourceType: "consul", Action: "allow"}
			err := putIntention(ctx, cl, q, one, true)
			if err == nil {
				err = e.Printf("Successfully set up intention for %q -> %q\n", x.gateway, x.service)
			}
			return err
		})
	f := c.Flags()
	f.StringVar(&x.gateway, "ingress-gateway", "", "name of the gateway's service")
	f.StringVar(&x.service, "service", "", "service to open")
	f.IntVar(&x.port, "port", 0, "port of the gateway's listener")
	f.StringVar(&x.protocol, "protocol", "tcp", "protocol of the listener")
	f.StringArrayVar(&x.hosts, "host", nil, "host name that routes to the service (repeat)")
	return c
}

// add puts the service on the entry's listener of the port, which it makes if there is none.
func (x *exposing) add(entry map[string]any) error {
	listeners, _ := entry["Listeners"].([]any)
	service := map[string]any{"Name": x.service}
	if len(x.hosts) > 0 {
		service["Hosts"] = x.hosts
	}
	for _, l := range listeners {
		listener, _ := l.(map[string]any)
		if port, _ := listener["Port"].(float64); int(port) != x.port {
			continue
		}
		if protocol, _ := listener["Protocol"].(string); protocol != x.protocol {
			return fmt.Errorf("the listener at port %d speaks %s, not %s: choose another --port", x.port, protocol, x.protocol)
		}
		services, _ := listener["Services"].([]any)
		for i, s := range services {
			if old, _ := s.(map[string]any); old["Name"] == x.service {
				services[i] = service
				return nil
			}
		}
		listener["Services"] = append(services, service)
		return nil
	}
	entry["Listeners"] = append(listeners, map[string]any{"Port": x.port, "Protocol": x.protocol,
		"Services": []any{service}})
	return nil
}

// ExportServices builds `services export`: it names a service in the entry of what is exported.
func ExportServices(e *command.Env) *cobra.Command {
	var name, peers, partitions string
	c := command.Act(e, "export", "Let other clusters use a service", command.Between(0, 0, "flags only"),
		func(ctx context.Context, d *command.Dial, cl *client.Client, _ []string) error {
			if name == "" || peers == "" {
				return command.Usagef("export needs --name and --consumer-peers")
			}
			if partitions != "" {
				return command.Usagef("there is only the default partition: leave out --consumer-partitions")
			}
			q := client.Query{Datacenter: d.Q.Datacenter}
			entry := map[string]any{"Kind": "exported-services", "Name": "default"}
			values := q.Values()
			values.Set("cas", "0")
			_, err := cl.Get(ctx, "/v1/config/exported-services/default", q, &entry)
			switch {
			case err == nil:
				values.Set("cas", fmt.Sprintf("%.0f", entry["ModifyIndex"]))
			case !client.IsNotFound(err):
				return err
			}
			addConsumers(entry, name, strings.Split(peers, ","))
			var ok bool
			if err := cl.Send(ctx, http.MethodPut, "/v1/config", values, entry, &ok); err != nil {
				return err
			}
			if !ok {
				return errors.New("somebody changed what is exported meanwhile: try again")
			}
			return e.Printf("Successfully exported service %q to cluster peers %q\n", name, peers)
		})
	f := c.Flags()
	f.StringVar(&name, "name", "", "name of the service")
	f.StringVar(&peers, "consumer-peers", "", "names of the peers that may use it, with commas between")
	f.StringVar(&partitions, "consumer-partitions", "", "must be empty: there is only the default partition")
	return c
}

// addConsumers adds peers to a service of the entry, each once.
func addConsumers(entry map[string]any, name string, peers []string) {
	services, _ := entry["Services"].([]any)
	var service map[string]any
	for _, s := range services {
		if one, _ := s.(map[string]any); one["Name"] == name {
			service = one
		}
	}
	if service == nil {
		service = map[string]any{"Name": name}
		entry["Services"] = append(services, service)
	}
	consumers, _ := service["Consumers"].([]any)
	for _, peer := range peers {
		known := false
		for _, c := range consumers {
			one, _ := c.(map[string]any)
			known = known || one["Peer"] == peer
		}
		if !known {
			consumers = append(consumers, map[string]any{"Peer": peer})
		}
	}
	service["Consumers"] = consumers
}
