package usageapi

import (
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/cloudevents"
)

// jointTag is the tag that has the values of several fields together, so that rows can be told by more than one of
// them; "" where there is none.
func jointTag(fields []string) string {
	name := strings.Join(fields, ",")
	if len(fields) < 2 || len(fields) >= usage.MaxProductTags || len(name) > usage.MaxNameBytes ||
		strings.Count(name, ",") != len(fields)-1 {
		return ""
	}
	return name
}

// addJoint gives a meter that tag, where there is room beside the tags that its product has had.
func addJoint(p, old *usage.Product) {
	joint := jointTag(p.Tags)
	if joint == "" {
		return
	}
	all := append(slices.Clone(p.Tags), joint)
	if old != nil {
		for _, tag := range old.Tags {
			if !slices.Contains(all, tag) {
				all = append(all, tag)
			}
		}
	}
	if len(all) <= usage.MaxProductTags {
		p.Tags = append(p.Tags, joint)
	}
}

// feeder makes of events what meters count. It is for one request.
type feeder struct {
	products usage.Products
	types    map[string]*fed
}

// fed are the meters of one type of events.
type fed struct {
	meters []fedMeter
	paths  cloudevents.Paths // into nested data; nil has none
}

// fedMeter is a meter with the names of what its rows can be grouped by.
type fedMeter struct {
	p      *usage.Product
	fields []string
	joint  string // the tag that has all of them; "" is none
}

func (a openMeter) feeder() *feeder {
	out := &feeder{products: a.cfg.Definitions.View().Products, types: map[string]*fed{}}
	for _, p := range out.products.All() {
		if p.Meter == nil {
			continue
		}
		of := out.types[p.Meter.EventType]
		if of == nil {
			of = &fed{}
			out.types[p.Meter.EventType] = of
		}
		m := fedMeter{p: p, fields: sorted(p.Meter.GroupBy)}
		if joint := jointTag(m.fields); joint != "" && slices.Contains(p.Tags, joint) {
			m.joint = joint
		}
		of.meters = append(of.meters, m)
		for _, text := range slices.AppendSeq([]string{p.Meter.ValueProperty}, maps.Values(p.Meter.GroupBy)) {
			if path, ok := fieldPath(text); ok && strings.Contains(path, ".") {
				if of.paths == nil {
					of.paths = cloudevents.Paths{}
				}
				of.paths.Add(path)
			}
		}
	}
	return out
}

// items are those of an event's meters. An event whose type is a product that is no meter goes there.
func (f *feeder) items(item *cloudevents.Item) (out []cloudevents.Item) {
	if item.Err != nil {
		return []cloudevents.Item{*item}
	}
	if of := f.types[item.Product]; of != nil {
		data := fields{item: item}
		if of.paths != nil {
			data.nested = of.paths.Of(item.Data)
		}
		for i := range of.meters {
			out = append(out, of.meters[i].count(data))
		}
	}
	if p, ok := f.products.Get(item.Product); ok && p.Meter == nil {
		return append(out, *item)
	}
	if len(out) == 0 {
		out = []cloudevents.Item{*item}
		out[0].Err = usage.Wrong("type", "no meter counts %.100q: POST /api/v1/meters", item.Product)
	}
	return out
}

// fields are those of an event's data, as texts.
type fields struct {
	item   *cloudevents.Item
	nested []usage.Field // by their paths
}

func (f fields) find(path string) (string, bool) {
	switch {
	case strings.Contains(path, "."):
		return usage.Find(f.nested, path)
	case path == "value" && f.item.HasValue: // a CloudEvent's field of that name is read as an amount
		return f.item.Value.String(), true
	}
	return usage.Find(f.item.Tags, path)
}

// count is an event as the meter counts it. An id belongs to one event, so that of a meter with another name than its
// type has the name behind it.
func (f *fedMeter) count(data fields) cloudevents.Item {
	p, m := f.p, f.p.Meter
	out := cloudevents.Item{Event: data.item.Event}
	out.Product, out.Identity, out.Tags, out.HasValue = p.Name, nil, nil, false
	if p.Name != m.EventType {
		out.ID += "#" + p.Name
	}
	name := strings.TrimPrefix(m.ValueProperty, "$.")
	text, there := data.find(name)
	switch {
	case m.Aggregation == "COUNT":
		out.Value, out.HasValue = usage.Int(1), true
	case !there:
		out.Err = usage.Wrong("data."+name, "is missing: meter %q needs it", p.Name)
	case p.Kind == usage.Unique:
		out.Identity = []usage.Field{{Name: "value", Value: text}}
	default:
		var ok bool
		if out.Value, ok = usage.ParseQuantity(text); !ok {
			out.Err = usage.Wrong("data."+name, "%.40q is no integer: amounts are exact here", text)
		}
		out.HasValue = ok
	}
	values := make([]string, len(f.fields))
	for i, field := range f.fields {
		v, ok := data.find(strings.TrimPrefix(m.GroupBy[field], "$."))
		if values[i] = v; ok {
			out.Tags = append(out.Tags, usage.Field{Name: field, Value: v})
		}
	}
	if f.joint != "" {
		if text := usage.JointValue(values); text != "" {
			out.Tags = append(out.Tags, usage.Field{Name: f.joint, Value: text})
		}
	}
	return out
}
