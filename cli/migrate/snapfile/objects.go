package snapfile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	catalogplane "corbel.dev/corbel/node/planes/catalog"
)

func text(o object, name string) string {
	switch v := o[name].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func inner(o object, name string) object {
	m, _ := o[name].(object)
	return m
}

// lean drops from o and all below it what is empty or belongs to one cluster alone: a state holds each
// field of each object, the API gives those that are set.
func lean(v any) any {
	switch v := v.(type) {
	case object:
		for k, x := range v {
			if x = lean(x); x == nil || k == "CreateIndex" || k == "ModifyIndex" || k == "RaftIndex" || k == "EnterpriseMeta" {
				delete(v, k)
			} else {
				v[k] = x
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			if x := lean(v[i]); x != nil {
				v[i] = x
			}
		}
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	case int64:
		if v == 0 {
			return nil
		}
	case uint64:
		if v == 0 {
			return nil
		}
	case float64:
		if v == 0 {
			return nil
		}
	}
	return v
}

func leanObject(o object) object {
	m, _ := lean(jsonable(o)).(object)
	if m == nil {
		return object{}
	}
	return m
}

// register takes one registration: a node, an instance on it, or checks.
func (s *Source) register(o object) error {
	name := text(o, "Node")
	if name == "" {
		return errors.New("a registration without a node")
	}
	if text(o, "PeerName") != "" || text(inner(o, "Service"), "PeerName") != "" {
		s.tally.peered++
		return nil
	}
	n := s.nodes[name]
	if n == nil {
		n = &host{fields: object{}, services: map[string]object{}}
		s.nodes[name] = n
	}
	for k, v := range leanObject(object{"Node": name, "Address": text(o, "Address"), "ID": text(o, "ID"),
		"Datacenter":      text(o, "Datacenter"),
		"TaggedAddresses": o["TaggedAddresses"], "Meta": o["NodeMeta"], "Locality": o["Locality"]}) {
		n.fields[k] = v // what a registration of an instance leaves out stays
	}
	if service := inner(o, "Service"); service != nil {
		id := cmp.Or(text(service, "ID"), text(service, "Service"))
		if id == "" {
			return fmt.Errorf("node %s: a service without a name", name)
		}
		n.services[id] = leanObject(service)
	}
	list, _ := o["Checks"].([]any)
	for _, v := range append(list, o["Check"]) {
		if check, ok := v.(object); ok {
			n.takeCheck(name, check)
		}
	}
	return nil
}

func (n *host) takeCheck(name string, check object) {
	n.agent = n.agent || text(check, "CheckID") == "serfHealth"
	definition := inner(check, "Definition")
	for _, field := range []string{"Interval", "Timeout", "DeregisterCriticalServiceAfter", "TTL"} {
		if ns, ok := whole(definition[field]); ok && ns != 0 {
			definition[field] = span(ns)
		}
	}
	check = leanObject(check)
	check["Node"] = name
	n.checks = append(n.checks, check)
}

// acl takes the objects of one kind of ACLs.
func acl(kind string) func(*Source, object) error {
	return func(s *Source, o object) error {
		id, name := text(o, "ID"), text(o, "Name")
		switch kind {
		case "policies":
			s.policies[id] = name
		case "roles":
			s.roles[id] = name
		case "auth-methods":
			if ttl, ok := whole(o["MaxTokenTTL"]); ok && ttl != 0 {
				o["MaxTokenTTL"] = span(ttl)
			}
		case "tokens":
			return s.token(o)
		}
		if id == "" && name == "" {
			return errors.New("neither an ID nor a Name")
		}
		s.acl[kind] = append(s.acl[kind], leanObject(o))
		return nil
	}
}

func (s *Source) token(o object) error {
	if text(o, "AccessorID") == "" || text(o, "SecretID") == "" {
		return errors.New("a token without an accessor or a secret: it is of the ACLs that Consul had before version 1.4")
	}
	for _, field := range []string{"ExpirationTime", "CreateTime"} {
		at, err := when(o[field])
		if err != nil {
			return fmt.Errorf("token %s: %s: %w", text(o, "AccessorID"), field, err) // without its end it would live for ever
		}
		if field == "ExpirationTime" && !at.IsZero() && at.Before(time.Now()) {
			s.tally.expired++
			return nil
		}
		if delete(o, field); !at.IsZero() {
			o[field] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	s.acl["tokens"] = append(s.acl["tokens"], leanObject(o))
	return nil
}

// when reads a point in time in the ways that MessagePack encoders write it.
func when(v any) (t time.Time, err error) {
	switch v := v.(type) {
	case nil:
		return t, nil
	case time.Time:
		return v, nil
	case []byte, string:
		raw := bytesOf(v)
		if len(raw) == 0 {
			return t, nil
		}
		switch len(raw) { // MessagePack's timestamp, whose mark older encodings leave out
		case 4:
			return time.Unix(int64(binary.BigEndian.Uint32(raw)), 0), nil
		case 8:
			both := binary.BigEndian.Uint64(raw)
			return time.Unix(int64(both&(1<<34-1)), int64(both>>34)), nil
		case 12:
			return time.Unix(int64(binary.BigEndian.Uint64(raw[4:])), int64(binary.BigEndian.Uint32(raw))), nil
		}
		if t.UnmarshalBinary(raw) == nil {
			return t, nil
		}
		if t, err = time.Parse(time.RFC3339Nano, string(raw)); err == nil {
			return t, nil
		}
	}
	return t, fmt.Errorf("a time in an encoding that is not known (%T)", v)
}

// linkNames gives links the names of what they point to: the state may hold ids alone.
func (s *Source) linkNames() {
	for _, kind := range []string{"tokens", "roles"} {
		for _, o := range s.acl[kind] {
			named(o, "Policies", s.policies)
			named(o, "Roles", s.roles)
		}
	}
}

func named(o object, field string, names map[string]string) {
	links, _ := o[field].([]any)
	for _, l := range links {
		link, _ := l.(object)
		if name := names[text(link, "ID")]; link != nil && name != "" {
			link["Name"] = name
		}
	}
}

// entry takes a config entry, bare or in the request that wrote it.
func (s *Source) entry(o object) error {
	if e := inner(o, "Entry"); e != nil {
		if text(e, "Kind") == "" {
			e["Kind"] = text(o, "Kind")
		}
		o = e
	}
	o = leanObject(o)
	kind, name := text(o, "Kind"), text(o, "Name")
	if kind == "" || name == "" {
		return errors.New("an entry without a kind or a name")
	}
	s.entries[kind] = append(s.entries[kind], catalogplane.PlainConfigEntry(o))
	return nil
}

func (s *Source) intention(o object) error {
	if t := inner(o, "Intention"); t != nil {
		o = t
	}
	if text(o, "SourceName") == "" || text(o, "DestinationName") == "" {
		return errors.New("an intention without a source or a destination")
	}
	s.legacy = append(s.legacy, leanObject(o))
	return nil
}

func (s *Source) query(o object) error {
	if q := inner(o, "Query"); q != nil {
		o = q
	}
	if text(inner(o, "Service"), "Service") == "" {
		return errors.New("a query without a service")
	}
	s.queries = append(s.queries, leanObject(o))
	return nil
}
