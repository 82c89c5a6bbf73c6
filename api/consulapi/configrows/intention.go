package configrows

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/api/consulapi/answer"
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// wireIntention is one intention as clients see it.
type wireIntention struct {
	ID          string `json:",omitempty"`
	Description string `json:",omitempty"`
	intentionEnds
	SourceType           string
	Action               string             `json:",omitempty"`
	Permissions          []entry.Permission `json:",omitempty"`
	DefaultAddr          string             `json:",omitempty"`
	DefaultPort          int                `json:",omitempty"`
	Meta                 map[string]string
	Precedence           int
	CreatedAt, UpdatedAt time.Time
	Hash                 []byte `json:",omitempty"`
	CreateIndex          uint64
	ModifyIndex          uint64
}

// intentionEnds are who connects, and to whom.
type intentionEnds struct {
	SourceNS             string
	SourceName           string
	SourcePartition      string `json:",omitempty"`
	SourcePeer           string `json:",omitempty"`
	DestinationNS        string
	DestinationName      string
	DestinationPartition string `json:",omitempty"`
}

// intentionsOf lists what one entry says, in the order of evaluation.
func intentionsOf(r *catalog.Record) []wireIntention {
	e, err := entry.Load(entry.ServiceIntentions, r.Value)
	if err != nil {
		return nil // it was valid when it was stored
	}
	var list []wireIntention
	for _, s := range e.(*entry.Intentions).Sources {
		in := wireIntention{ID: s.LegacyID, Description: s.Description,
			intentionEnds: intentionEnds{SourceNS: "default", SourceName: s.Name, SourcePeer: s.Peer,
				DestinationNS: "default", DestinationName: e.Base().Name},
			SourceType: s.Type, Action: s.Action, Permissions: s.Permissions,
			Meta: s.LegacyMeta, Precedence: s.Precedence, CreateIndex: r.CreateIndex, ModifyIndex: r.ModifyIndex}
		if s.LegacyCreateTime != nil {
			in.CreatedAt = *s.LegacyCreateTime
		}
		if s.LegacyUpdateTime != nil {
			in.UpdatedAt = *s.LegacyUpdateTime
		}
		if in.Meta == nil {
			in.Meta = map[string]string{}
		}
		list = append(list, in)
	}
	return list
}

const intentionsPrefix = entry.ServiceIntentions + "/"

// allIntentions lists those that keep picks, highest precedence first.
func allIntentions(st *statestore.State, keep func(*wireIntention) bool) []wireIntention {
	list := []wireIntention{}
	for r := range st.Records(catalog.RecordConfigEntry, intentionsPrefix) {
		for _, in := range intentionsOf(r) {
			if keep(&in) {
				list = append(list, in)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b wireIntention) int {
		return cmp.Or(cmp.Compare(b.Precedence, a.Precedence), strings.Compare(a.DestinationName, b.DestinationName),
			strings.Compare(a.SourceName, b.SourceName))
	})
	return list
}

var intentionSchema = filter.NewSchema(map[string]func(*wireIntention) string{
	"ID":              func(i *wireIntention) string { return i.ID },
	"Description":     func(i *wireIntention) string { return i.Description },
	"SourceNS":        func(i *wireIntention) string { return i.SourceNS },
	"SourceName":      func(i *wireIntention) string { return i.SourceName },
	"DestinationNS":   func(i *wireIntention) string { return i.DestinationNS },
	"DestinationName": func(i *wireIntention) string { return i.DestinationName },
	"SourceType":      func(i *wireIntention) string { return i.SourceType },
	"Action":          func(i *wireIntention) string { return i.Action },
}, map[string]func(*wireIntention) int{
	"Precedence": func(i *wireIntention) int { return i.Precedence },
}, map[string]func(*wireIntention) map[string]string{
	"Meta": func(i *wireIntention) map[string]string { return i.Meta },
})

func intentionList(q *rows.Request) error {
	f, err := q.Filter(intentionSchema)
	if err != nil {
		return err
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	return q.ReplyValue(allIntentions(st, func(in *wireIntention) bool {
		return q.Sees(acl.Intention, in.DestinationName) && (f == nil || f.Match(in))
	}))
}

// intentionName reads "name", "ns/name" or "partition/ns/name", with default for what
// only the enterprise edition has; peer is set for "peer:peer/name" where that may stand.
func intentionName(param, text string, peers bool) (name, peer string, err error) {
	if text == "" {
		return "", "", answer.Invalidf("required query parameter '%s' not set", param)
	}
	if rest, ok := strings.CutPrefix(text, "peer:"); ok && peers {
		peer, name, ok = strings.Cut(rest, "/")
		if !ok || peer == "" || name == "" {
			return "", "", answer.Invalidf("error parsing %s %q: expected peer:PEER/NAME", param, text)
		}
		return name, peer, nil
	}
	parts := strings.Split(text, "/")
	for _, p := range parts[:len(parts)-1] {
		if p != "default" {
			return "", "", answer.Invalidf("error parsing %s %q: namespaces and partitions other than default are an "+
				"enterprise feature", param, text)
		}
	}
	if name = parts[len(parts)-1]; len(parts) > 3 || name == "" {
		return "", "", answer.Invalidf("error parsing %s %q: expected NAME", param, text)
	}
	return name, "", nil
}

// exact reads the pair that ?source= and ?destination= name.
func exact(q *rows.Request) (source, peer, destination string, err error) {
	if source, peer, err = intentionName("source", q.Query.Value("source"), true); err == nil {
		destination, _, err = intentionName("destination", q.Query.Value("destination"), false)
	}
	return source, peer, destination, err
}

func intentionGet(q *rows.Request) error {
	source, peer, destination, err := exact(q)
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Intention, destination, acl.Read); err != nil {
		return err
	}
	key := entry.Key(entry.ServiceIntentions, destination)
	st, err := q.ReadRecord(catalog.RecordConfigEntry, key)
	if err != nil {
		return err
	}
	if r := st.Record(catalog.RecordConfigEntry, key); r != nil {
		for _, in := range intentionsOf(r) {
			if in.SourceName == source && in.SourcePeer == peer {
				return q.ReplyValue(in)
			}
		}
	}
	return answer.Fail(http.StatusNotFound, "Intention not found")
}

func intentionSet(q *rows.Request) error {
	source, peer, destination, err := exact(q)
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Intention, destination, acl.Write); err != nil {
		return err
	}
	var in wireIntention
	if err := q.Decode(&in); err != nil {
		return err
	}
	now := q.Clock.Now().UTC()
	next := &entry.Source{Name: source, Peer: peer, Action: strings.ToLower(in.Action), Permissions: in.Permissions,
		Type:        in.SourceType,
		Description: in.Description, LegacyMeta: in.Meta, LegacyCreateTime: &now, LegacyUpdateTime: &now}
	err = editIntentions(q, destination, func(e *entry.Intentions) (bool, error) {
		i := slices.IndexFunc(e.Sources, func(s *entry.Source) bool { return s.Name == source && s.Peer == peer })
		if i < 0 {
			e.Sources = append(e.Sources, next)
			return true, nil
		}
		old := e.Sources[i]
		next.LegacyCreateTime, next.LegacyID = old.LegacyCreateTime, old.LegacyID
		next.Precedence, next.LegacyUpdateTime = old.Precedence, old.LegacyUpdateTime
		if next.Type == "" {
			next.Type = old.Type
		}
		if sameJSON(next, old) {
			return false, nil // nothing to write: nobody is woken
		}
		next.LegacyUpdateTime = &now
		e.Sources[i] = next
		return true, nil
	})
	if err != nil {
		return err
	}
	return q.ReplyBool(true)
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

func intentionDelete(q *rows.Request) error {
	source, peer, destination, err := exact(q)
	if err != nil {
		return err
	}
	if err := q.Allow(acl.Intention, destination, acl.Write); err != nil {
		return err
	}
	err = editIntentions(q, destination, func(e *entry.Intentions) (bool, error) {
		before := len(e.Sources)
		e.Sources = slices.DeleteFunc(e.Sources, func(s *entry.Source) bool { return s.Name == source && s.Peer == peer })
		return len(e.Sources) != before, nil
	})
	if err != nil {
		return err
	}
	return q.ReplyBool(true)
}

// editIntentions changes one destination's entry, again when another change came between.
func editIntentions(q *rows.Request, destination string, edit func(*entry.Intentions) (changed bool, err error)) error {
	if _, err := q.Registry.Read(q.R.Context(), registry.Default); err != nil {
		return err
	}
	key := entry.Key(entry.ServiceIntentions, destination)
	for range configTries {
		e := &entry.Intentions{Common: entry.Common{Kind: entry.ServiceIntentions, Name: destination}}
		op := catalog.RecordOp{Verb: catalog.RecordCAS, Record: catalog.Record{Kind: catalog.RecordConfigEntry, Key: key}}
		if r := q.Registry.State().Record(catalog.RecordConfigEntry, key); r != nil {
			stored, err := entry.Load(entry.ServiceIntentions, r.Value)
			if err != nil {
				return err
			}
			e, op.Record.ModifyIndex = stored.(*entry.Intentions), r.ModifyIndex
		}
		changed, err := edit(e)
		if err != nil || !changed {
			return err
		}
		if len(e.Sources) == 0 {
			op.Verb = catalog.RecordDeleteCAS
		} else {
			e.Normalize()
			if err := e.Validate(); err != nil {
				return errkind.E(errkind.Invalid, "", err)
			}
			if op.Record.Value, err = entry.Encode(e); err != nil {
				return err
			}
		}
		if ok, err := q.SetRecords(op); ok || err != nil {
			return err
		}
	}
	return errkind.New(errkind.Overloaded, "intentions change too fast")
}

// intentionMatch answers what proxies poll: the intentions that concern each name.
func intentionMatch(q *rows.Request) error {
	by := q.Query.Value("by")
	if by != "source" && by != "destination" {
		return answer.Invalidf("required query parameter 'by' not set: must be one of source or destination")
	}
	var names []string
	for k, v := range q.Query.Pairs() {
		if k == "name" {
			name, _, err := intentionName("name", v, false)
			if err != nil {
				return err
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return answer.Invalidf("required query parameter 'name' not set")
	}
	for _, name := range names {
		if err := q.Allow(acl.Intention, name, acl.Read); err != nil {
			return err
		}
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	out := map[string][]wireIntention{}
	for _, name := range names {
		out[name] = matching(st, by, name)
	}
	return q.ReplyValue(out)
}

func matching(st *statestore.State, by, name string) []wireIntention {
	return allIntentions(st, func(in *wireIntention) bool {
		at := in.DestinationName
		if by == "source" {
			at = in.SourceName
		}
		return at == name || at == "*"
	})
}

// intentionCheck decides one pair: the first that matches, else the default.
func (cf *Rows) intentionCheck(q *rows.Request) error {
	source, peer, destination, err := exact(q)
	if err != nil {
		return err
	}
	if t := q.Query.Value("source-type"); t != "" && t != "consul" {
		return answer.Invalidf("unknown source-type %q: only consul is known", t)
	}
	if err := q.Allow(acl.Intention, destination, acl.Read); err != nil {
		return err
	}
	st, err := q.ReadRecords(catalog.RecordConfigEntry)
	if err != nil {
		return err
	}
	allowed := cf.allowsByDefault()
	for _, in := range matching(st, "destination", destination) {
		if (in.SourceName == source || in.SourceName == "*") && in.SourcePeer == peer {
			allowed = in.Action == entry.Allow // permissions depend on the request: they count as deny here
			break
		}
	}
	return q.ReplyValue(struct{ Allowed bool }{allowed})
}
