package ldapsecrets

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	client "github.com/go-ldap/ldap/v3"
)

// change is one record of an LDIF (RFC 2849).
type change struct {
	dn    string
	kind  string // add, modify, delete, modrdn
	attrs []pair // of add: in the order in which they are written
	mods  []mod  // of modify
	rdn   rename // of modrdn
}

type pair struct{ name, value string }

type mod struct {
	op     string // add, delete, replace
	name   string
	values []string
}

type rename struct {
	to, below string
	keep      bool // the old name as a value
}

const changesMost = 100

// parseLDIF reads records: changes, or entries, which are added.
func parseLDIF(text string) (list []change, err error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\n ", "") // a line that goes on
	var lines []pair
	flush := func() error {
		if len(lines) == 0 {
			return nil
		}
		c, err := parseChange(lines)
		if err == nil && len(list) == changesMost {
			err = fmt.Errorf("more than %d records", changesMost)
		}
		list, lines = append(list, c), nil
		return err
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.TrimSpace(line) == "":
			if err := flush(); err != nil {
				return nil, err
			}
			continue
		case line[0] == '#':
			continue
		case line == "-":
			lines = append(lines, pair{"-", ""})
			continue
		}
		p, err := parseLine(line)
		if err != nil {
			return nil, err
		}
		if p.name == "version" && len(list)+len(lines) == 0 {
			continue
		}
		lines = append(lines, p)
	}
	if err := flush(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("it has no record")
	}
	return list, nil
}

func parseLine(line string) (pair, error) {
	name, value, ok := strings.Cut(line, ":")
	switch {
	case !ok || name == "" || strings.ContainsAny(name, " \t"):
		return pair{}, fmt.Errorf("%.40q is no line of LDIF: NAME: VALUE", line)
	case strings.HasPrefix(value, "<"):
		return pair{}, fmt.Errorf("%s: values from URLs are not read", name)
	case strings.HasPrefix(value, ":"):
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value[1:]))
		if err != nil {
			return pair{}, fmt.Errorf("%s: its value is no base64", name)
		}
		return pair{name, string(raw)}, nil
	}
	return pair{name, strings.TrimLeft(value, " ")}, nil
}

func parseChange(lines []pair) (c change, err error) {
	if !strings.EqualFold(lines[0].name, "dn") {
		return c, fmt.Errorf("a record begins with dn:, not with %s:", lines[0].name)
	}
	c.dn, lines = lines[0].value, lines[1:]
	if _, err := client.ParseDN(c.dn); err != nil || c.dn == "" {
		return c, fmt.Errorf("dn: %q is no DN", c.dn)
	}
	if c.kind = "add"; len(lines) > 0 && strings.EqualFold(lines[0].name, "changetype") {
		c.kind, lines = strings.ToLower(lines[0].value), lines[1:]
	}
	switch c.kind {
	case "add":
		if len(lines) == 0 {
			return c, fmt.Errorf("%s: an entry without attributes", c.dn)
		}
		c.attrs = lines
	case "delete":
		if len(lines) > 0 {
			return c, fmt.Errorf("%s: changetype delete takes no attributes", c.dn)
		}
	case "modify":
		c.mods, err = parseMods(lines)
	case "modrdn", "moddn":
		c.kind = "modrdn"
		c.rdn, err = parseRename(lines)
	default:
		err = fmt.Errorf("changetype %q is none of add, modify, delete, modrdn", c.kind)
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", c.dn, err)
	}
	return c, nil
}

func parseMods(lines []pair) (list []mod, err error) {
	for len(lines) > 0 {
		m := mod{op: strings.ToLower(lines[0].name), name: lines[0].value}
		if !slices.Contains([]string{"add", "delete", "replace"}, m.op) || m.name == "" {
			return nil, fmt.Errorf("a change begins with add:, delete: or replace: and an attribute, not with %s:",
				lines[0].name)
		}
		lines = lines[1:]
		for len(lines) > 0 && lines[0].name != "-" {
			if !strings.EqualFold(lines[0].name, m.name) {
				return nil, fmt.Errorf("%s: %s is followed by %s: end a change with a line \"-\"", m.op, m.name, lines[0].name)
			}
			m.values, lines = append(m.values, lines[0].value), lines[1:]
		}
		if len(lines) > 0 {
			lines = lines[1:]
		}
		list = append(list, m)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("changetype modify without a change")
	}
	return list, nil
}

func parseRename(lines []pair) (r rename, err error) {
	for _, l := range lines {
		switch strings.ToLower(l.name) {
		case "newrdn":
			r.to = l.value
		case "newsuperior":
			r.below = l.value
		case "deleteoldrdn":
			r.keep = l.value == "0"
		default:
			return r, fmt.Errorf("%s: is none of newrdn, deleteoldrdn, newsuperior", l.name)
		}
	}
	if r.to == "" {
		return r, fmt.Errorf("newrdn is missing")
	}
	return r, nil
}

// apply makes the change. A forgiving one is content where what it takes away is not there.
func (c *change) apply(conn *client.Conn, forgiving bool) (err error) {
	switch c.kind {
	case "add":
		r := client.NewAddRequest(c.dn, nil)
		byName, order := map[string][]string{}, []string(nil)
		for _, a := range c.attrs {
			if byName[a.name] == nil {
				order = append(order, a.name)
			}
			byName[a.name] = append(byName[a.name], a.value)
		}
		for _, name := range order {
			r.Attribute(name, byName[name])
		}
		err = conn.Add(r)
	case "delete":
		err = conn.Del(client.NewDelRequest(c.dn, nil))
	case "modify":
		r := client.NewModifyRequest(c.dn, nil)
		for _, m := range c.mods {
			switch m.op {
			case "add":
				r.Add(m.name, m.values)
			case "delete":
				r.Delete(m.name, m.values)
			case "replace":
				r.Replace(m.name, m.values)
			}
		}
		err = conn.Modify(r)
	case "modrdn":
		err = conn.ModifyDN(client.NewModifyDNRequest(c.dn, c.rdn.to, !c.rdn.keep, c.rdn.below))
	}
	if forgiving && client.IsErrorAnyOf(err, client.LDAPResultNoSuchObject, client.LDAPResultNoSuchAttribute) {
		return nil
	}
	return err
}
