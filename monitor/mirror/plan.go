package mirror

import (
	"bytes"
	"context"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
)

// object is one of a source, decoded and valid.
type object struct {
	namespace, name string
	encoded         []byte
}

// change is what is done to one object: all of it or nothing.
type change struct {
	ops     []objects.Op
	deletes bool
	counts  bool // the object itself changes, not only the record of where it is from
}

func (c change) what() string {
	o := c.ops[0]
	if o.Namespace != "" {
		return o.Type + " " + o.Namespace + "/" + o.Name
	}
	return o.Type + " " + o.Name
}

// plan says what makes this cluster's objects of a type those of a source. Objects that are as they should be cost
// nothing; those that another replicator brought are left alone, and one of them is named by taken.
func plan(v *resources.View, r *monitor.Replicator, typ monitor.Type, origin string, list []object) (out []change,
	taken string, n uint64) {
	wanted := make(map[string]bool, len(list))
	for _, o := range list {
		name := monitor.CopyName(typ.Name, o.namespace, o.name)
		wanted[name] = true
		from := v.Get(monitor.CopyType, "", name)
		if from != nil {
			if other := from.Object().(*monitor.Copy).Replicator; other != r.Name &&
				v.Get("etcd-replicators", "", other) != nil {
				taken, n = name, n+1
				continue
			}
		}
		var c change
		if here := v.Get(typ.Name, o.namespace, o.name); here == nil || !bytes.Equal(here.Encoded, o.encoded) {
			c.counts = true
			c.ops = append(c.ops, objects.Op{Verb: objects.Put, Type: typ.Name, Namespace: o.namespace, Name: o.name,
				Encoded: o.encoded})
		}
		record := tagproto.Append(nil, &monitor.Copy{Meta: monitor.Meta{Name: name}, Replicator: r.Name, Origin: origin})
		if from == nil || !bytes.Equal(from.Encoded, record) {
			c.ops = append(c.ops, objects.Op{Verb: objects.Put, Type: monitor.CopyType, Name: name, Encoded: record})
		}
		if len(c.ops) > 0 {
			out = append(out, c)
		}
	}
	v.List(monitor.CopyType, "", "", "", func(i *objects.Item) bool {
		record := i.Object().(*monitor.Copy)
		t, namespace, name := record.Of()
		if record.Replicator != r.Name || t != typ.Name || wanted[i.Name] || r.Only != "" && namespace != r.Only {
			return true
		}
		drop := objects.Op{Verb: objects.Drop, Type: monitor.CopyType, Name: i.Name}
		out = append(out, change{deletes: true,
			ops: []objects.Op{{Verb: objects.Drop, Type: typ.Name, Namespace: namespace, Name: name}, drop}})
		return true
	})
	return out, taken, n
}

// released lists records whose replicator is gone, or looks after other objects now: what they are of stays, and is
// this cluster's own.
func released(v *resources.View) (ops []objects.Op) {
	v.List(monitor.CopyType, "", "", "", func(i *objects.Item) bool {
		record := i.Object().(*monitor.Copy)
		typ, namespace, _ := record.Of()
		kept := false
		if item := v.Get("etcd-replicators", "", record.Replicator); item != nil {
			r := item.Object().(*monitor.Replicator)
			t, _ := r.Type()
			kept = t.Name == typ && (r.Only == "" || r.Only == namespace)
		}
		if !kept {
			ops = append(ops, objects.Op{Verb: objects.Drop, Type: monitor.CopyType, Name: i.Name, If: i.Index})
		}
		return len(ops) < releaseMost
	})
	return ops
}

const releaseMost = 500 // records with one command

// release removes records that nobody looks after. It looks only when something changed.
func (m *Mirror) release(ctx context.Context) error {
	v := m.cfg.Resources.View()
	if v.Index() == m.looked {
		return nil
	}
	ops := released(v)
	if len(ops) == 0 {
		m.looked = v.Index()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return m.cfg.Resources.Write(ctx, ops...)
}
