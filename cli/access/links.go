package access

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// links are the flags for the policies or roles of an object.
type links struct {
	what                         string // policy or role
	ids, names, addIDs, addNames []string
	merge                        bool
}

// flags gives c --WHAT-id and --WHAT-name, and for updates those that add.
func (l *links) flags(c *cobra.Command, what, path string, update bool) {
	l.what = what
	f := c.Flags()
	f.StringArrayVar(&l.ids, what+"-id", nil, "id of a "+what+" (repeat)")
	f.StringArrayVar(&l.names, what+"-name", nil, "name of a "+what+" (repeat)")
	if update {
		f.StringArrayVar(&l.addIDs, "append-"+what+"-id", nil, "id of a "+what+" to add to those that are there (repeat)")
		f.StringArrayVar(&l.addNames, "append-"+what+"-name", nil,
			"name of a "+what+" to add to those that are there (repeat)")
		f.BoolVar(&l.merge, "merge-"+path, false, "old form: add those named instead of replacing")
	}
}

// apply gives the links after the flags: those named replace, those appended add.
func (l *links) apply(ctx context.Context, cl *client.Client, d *command.Dial, now []client.Link) ([]client.Link,
	error) {
	path := map[string]string{"policy": "/v1/acl/policies", "role": "/v1/acl/roles"}[l.what]
	replace := len(l.ids)+len(l.names) > 0
	if replace && len(l.addIDs)+len(l.addNames) > 0 {
		return nil, command.Usagef("--%s-id and --append-%s-id exclude each other: the first replaces, the second adds",
			l.what, l.what)
	}
	if replace && !l.merge {
		now = nil
	}
	out := slices.Clone(now)
	add := func(k client.Link) {
		if !slices.ContainsFunc(out, func(o client.Link) bool {
			return k.ID != "" && o.ID == k.ID || k.Name != "" && o.Name == k.Name
		}) {
			out = append(out, k)
		}
	}
	for _, id := range slices.Concat(l.ids, l.addIDs) {
		full, err := idOf(ctx, cl, d, path, l.what, id)
		if err != nil {
			return nil, err
		}
		add(client.Link{ID: full})
	}
	for _, name := range slices.Concat(l.names, l.addNames) {
		add(client.Link{Name: name})
	}
	return out, nil
}

// identities are the flags for what tokens and roles have beside policies.
type identities struct {
	services, nodes, addServices, addNodes []string
	templated, templatedFile               string
	variables                              []string
	mergeServices, mergeNodes              bool
}

func (i *identities) flags(c *cobra.Command, update bool) {
	f := c.Flags()
	f.StringArrayVar(&i.services, "service-identity", nil, "SERVICE or SERVICE:dc1,dc2: its rights (repeat)")
	f.StringArrayVar(&i.nodes, "node-identity", nil, "NODE:DATACENTER: its rights (repeat)")
	f.StringVar(&i.templated, "templated-policy", "", "name of a built-in policy, with its variables in --var")
	f.StringVar(&i.templatedFile, "templated-policy-file", "",
		"file of such policies, JSON: {\"builtin/service\": [{\"Name\": \"web\"}]} or a list as the API has it")
	f.StringArrayVar(&i.variables, "var", nil, "name:VALUE of --templated-policy (repeat)")
	if update {
		f.StringArrayVar(&i.addServices, "append-service-identity", nil, "service identity to add (repeat)")
		f.StringArrayVar(&i.addNodes, "append-node-identity", nil, "node identity to add (repeat)")
		f.BoolVar(&i.mergeServices, "merge-service-identities", false,
			"old form: add service identities instead of replacing")
		f.BoolVar(&i.mergeNodes, "merge-node-identities", false, "old form: add node identities instead of replacing")
	}
}

// servicesAfter gives the service identities after the flags.
func (i *identities) servicesAfter(now []client.ServiceIdentity) []client.ServiceIdentity {
	if len(i.services) > 0 && !i.mergeServices {
		now = nil
	}
	out := slices.Clone(now)
	for _, text := range slices.Concat(i.services, i.addServices) {
		name, dcs, limited := strings.Cut(text, ":")
		id := client.ServiceIdentity{ServiceName: name}
		if limited {
			id.Datacenters = strings.Split(dcs, ",")
		}
		out = slices.DeleteFunc(out, func(o client.ServiceIdentity) bool { return o.ServiceName == name })
		out = append(out, id)
	}
	return out
}

// nodesAfter gives the node identities after the flags.
func (i *identities) nodesAfter(now []client.NodeIdentity) ([]client.NodeIdentity, error) {
	if len(i.nodes) > 0 && !i.mergeNodes {
		now = nil
	}
	out := slices.Clone(now)
	for _, text := range slices.Concat(i.nodes, i.addNodes) {
		name, dc, ok := strings.Cut(text, ":")
		if !ok || name == "" || dc == "" {
			return nil, command.Usagef("--node-identity %s must be NODE:DATACENTER", text)
		}
		if id := (client.NodeIdentity{NodeName: name, Datacenter: dc}); !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out, nil
}

// templatedAfter gives the templated policies after the flags.
func (i *identities) templatedAfter(now []client.TemplatedPolicy) ([]client.TemplatedPolicy, error) {
	switch {
	case i.templated != "" && i.templatedFile != "":
		return nil, command.Usagef("--templated-policy and --templated-policy-file exclude each other")
	case i.templated != "":
		p := client.TemplatedPolicy{TemplateName: i.templated}
		for _, v := range i.variables {
			name, value, ok := strings.Cut(v, ":")
			if !ok || !strings.EqualFold(name, "name") {
				return nil, command.Usagef("--var %s must be name:VALUE", v)
			}
			p.TemplateVariables = &client.TemplateVariables{Name: value}
		}
		return []client.TemplatedPolicy{p}, nil
	case i.templatedFile != "":
		text, err := command.ReadFile(i.templatedFile)
		if err != nil {
			return nil, err
		}
		return templatedFrom(text)
	}
	return now, nil
}

// templatedFrom reads a file of templated policies in either form.
func templatedFrom(text []byte) ([]client.TemplatedPolicy, error) {
	var list []client.TemplatedPolicy
	if json.Unmarshal(text, &list) == nil {
		return list, nil
	}
	var byName map[string][]client.TemplateVariables
	if err := json.Unmarshal(text, &byName); err != nil {
		return nil, fmt.Errorf("the file of templated policies is neither a list nor variables by name: %w", err)
	}
	for _, name := range command.SortedKeys(byName) {
		if len(byName[name]) == 0 {
			list = append(list, client.TemplatedPolicy{TemplateName: name})
		}
		for _, v := range byName[name] {
			list = append(list, client.TemplatedPolicy{TemplateName: name, TemplateVariables: &v})
		}
	}
	return list, nil
}

// linksText prints links under a heading, each line with indent before it.
func linksText(b *strings.Builder, heading, indent string, links []client.Link) {
	if len(links) == 0 {
		return
	}
	fmt.Fprintf(b, "%s%s:\n", indent, heading)
	for _, l := range links {
		fmt.Fprintf(b, "%s   %s - %s\n", indent, l.ID, l.Name)
	}
}

// identitiesText prints identities under headings.
func identitiesText(b *strings.Builder, indent string, services []client.ServiceIdentity, nodes []client.NodeIdentity,
	templated []client.TemplatedPolicy) {
	if len(services) > 0 {
		fmt.Fprintf(b, "%sService Identities:\n", indent)
	}
	for _, s := range services {
		dcs := "all"
		if len(s.Datacenters) > 0 {
			dcs = strings.Join(s.Datacenters, ", ")
		}
		fmt.Fprintf(b, "%s   %s (Datacenters: %s)\n", indent, s.ServiceName, dcs)
	}
	if len(nodes) > 0 {
		fmt.Fprintf(b, "%sNode Identities:\n", indent)
	}
	for _, n := range nodes {
		fmt.Fprintf(b, "%s   %s (Datacenter: %s)\n", indent, n.NodeName, n.Datacenter)
	}
	if len(templated) > 0 {
		fmt.Fprintf(b, "%sTemplated Policies:\n", indent)
	}
	for _, t := range templated {
		fmt.Fprintf(b, "%s   %s\n", indent, t.TemplateName)
		if t.TemplateVariables != nil && t.TemplateVariables.Name != "" {
			fmt.Fprintf(b, "%s      Name: %s\n", indent, t.TemplateVariables.Name)
		}
	}
}
