// Package objects is the replicated configuration of the monitoring plane: its objects, and the commands that change
// them.
//
// A State is immutable; Apply makes the next one. It is pure and gives the same result
// on every member. Objects are decoded once, when they are applied, but for entities, of which there may be very
// many: these are kept encoded, and decoded for who reads one. Nobody must change an object.
package objects

import (
	"cmp"
	"strings"
	"unique"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
)

// Item is an object as it is kept.
type Item struct {
	Type      string
	Namespace string
	Name      string
	Index     uint64         // of the command that wrote it
	Encoded   []byte         // in protobuf
	object    monitor.Object // nil is that Object decodes it
}

// NewItem returns an item of an object that is in no State.
func NewItem(namespace, name string, index uint64, object monitor.Object) *Item {
	return &Item{Namespace: namespace, Name: name, Index: index, object: object}
}

// Object returns the object. It may be shared, and must not be changed; each call may decode it, so it is not for
// asking whether it is there.
func (i *Item) Object() monitor.Object {
	if i.object != nil {
		return i.object
	}
	c := new(monitor.EntityConfig)
	if err := tagproto.Unmarshal(i.Encoded, c); err != nil { // it was decoded when it was applied, and nobody changes it
		panic(errkind.E(errkind.Corrupt, i.Type, err))
	}
	c.Share()
	return c
}

// State is all objects, ordered by type, namespace and name.
type State struct {
	items table.Table[*Item]
	index uint64
}

// New returns the state without anything.
func New() State { return State{items: table.New(compare)} }

func compare(a, b *Item) int { return place(a.Type, a.Namespace, a.Name)(b) }

// place compares the names of what is looked for with an item's.
func place(typ, namespace, name string) func(*Item) int {
	return func(i *Item) int {
		return cmp.Or(strings.Compare(typ, i.Type), strings.Compare(namespace, i.Namespace), strings.Compare(name, i.Name))
	}
}

// Index is that of the newest command that changed something.
func (s State) Index() uint64 { return s.index }

// Len returns the number of objects.
func (s State) Len() int { return s.items.Len() }

// Get returns an object; nil when there is none.
func (s State) Get(typ, namespace, name string) *Item {
	item, _ := s.items.Find(place(typ, namespace, name))
	return item
}

// List calls f with the objects of a type, in order, of one namespace or ("") of all, until f returns false.
// after is the last one of the page before.
func (s State) List(typ, namespace, afterNamespace, afterName string, f func(*Item) bool) {
	from := afterNamespace
	if from < namespace {
		from, afterName = namespace, ""
	}
	for i := range s.items.Seek(place(typ, from, afterName)) {
		if i.Type != typ || namespace != "" && i.Namespace != namespace {
			return
		}
		if i.Namespace == afterNamespace && i.Name == afterName && afterName != "" {
			continue
		}
		if !f(i) {
			return
		}
	}
}

// Verb says what an Op does.
type Verb uint8

// The verbs.
const (
	Create Verb = 1 + iota // must not be there
	Put
	Delete // must be there
	Drop   // may be there
)

// Op is one change of a command.
type Op struct {
	Verb      Verb
	Type      string
	Namespace string
	Name      string
	Encoded   []byte
	// If, when not 0, is the index that the object must have; absent is one that does not exist.
	If uint64
}

// Apply does all of a command's ops or none. Errors: Conflict (Create of what is there; If does not hold: see
// ErrPrecondition), NotFound (the object, or its namespace), Invalid.
func (s State) Apply(ops []Op) (State, error) {
	e := s.items.Edit()
	next := State{index: s.index + 1}
	for _, op := range ops {
		if err := apply(&e, op, next.index); err != nil {
			return s, err
		}
	}
	next.items = e.Done()
	return next, nil
}

// ErrPrecondition is the cause of an error of kind Conflict where an object is not the one that the caller saw.
var ErrPrecondition = errkind.New(errkind.Conflict, "the object was changed meanwhile")

func find(e *table.Edit[*Item], typ, namespace, name string) *Item {
	item, _ := e.Find(place(typ, namespace, name))
	return item
}

func apply(e *table.Edit[*Item], op Op, index uint64) error {
	typ, ok := monitor.TypeOf(op.Type)
	if !ok {
		return errkind.Errorf(errkind.Invalid, "%q is no type of objects", op.Type)
	}
	if typ.Scoped != (op.Namespace != "") {
		return errkind.Errorf(errkind.Invalid, "%s %q: namespace %q", op.Type, op.Name, op.Namespace)
	}
	old := find(e, op.Type, op.Namespace, op.Name)
	if op.If != 0 && (old == nil || old.Index != op.If) {
		return ErrPrecondition
	}
	if op.Verb == Drop && old == nil {
		return nil
	}
	if op.Verb == Delete || op.Verb == Drop {
		return remove(e, op, old)
	}
	if op.Verb == Create && old != nil {
		return errkind.Errorf(errkind.Conflict, "%s %q already exists", op.Type, op.Name)
	}
	if typ.Scoped && find(e, "namespaces", "", op.Namespace) == nil {
		return errkind.Errorf(errkind.NotFound, "namespace %q does not exist", op.Namespace)
	}
	item, err := decode(op, typ, index)
	if err != nil {
		return err
	}
	e.Set(item)
	if op.Type == "namespaces" && old == nil {
		seedNamespace(e, op.Name, index)
	}
	return nil
}

func decode(op Op, typ monitor.Type, index uint64) (*Item, error) {
	item := &Item{Type: op.Type, Namespace: op.Namespace, Name: op.Name, Index: index,
		Encoded: append([]byte(nil), op.Encoded...), object: typ.New()}
	if err := tagproto.Unmarshal(item.Encoded, item.object); err != nil {
		return nil, errkind.E(errkind.Invalid, op.Type, err)
	}
	if namespace, name := item.object.Key(); namespace != op.Namespace || name != op.Name {
		return nil, errkind.Errorf(errkind.Invalid, "%s %s/%s has another name within: %s/%s", op.Type, op.Namespace, op.Name,
			namespace, name)
	}
	item.Type = typ.Name
	if _, is := item.object.(*monitor.EntityConfig); is { // there may be a hundred thousand
		item.Namespace, item.Name, item.object = unique.Make(op.Namespace).Value(), strings.Clone(op.Name), nil
		return item, nil
	}
	item.Namespace, item.Name = item.object.Key() // the same texts, once
	return item, nil
}

func remove(e *table.Edit[*Item], op Op, old *Item) error {
	if old == nil {
		return errkind.Errorf(errkind.NotFound, "%s %q does not exist", op.Type, op.Name)
	}
	if op.Type == "namespaces" {
		if err := unseedNamespace(e, op.Name); err != nil {
			return err
		}
	}
	e.Delete(old)
	return nil
}

// pipelineRole is what each namespace has so that functions of filters may read its events.
const pipelineRole = "system:pipeline"

func seedNamespace(e *table.Edit[*Item], namespace string, index uint64) {
	meta := monitor.Meta{Name: pipelineRole, Namespace: namespace}
	set := func(typ string, object monitor.Object) {
		e.Set(&Item{Type: typ, Namespace: namespace, Name: pipelineRole, Index: index, Encoded: tagproto.Append(nil, object),
			object: object})
	}
	set("roles", &monitor.Role{Meta: meta, Rules: []monitor.Rule{{Verbs: []string{"get", "list"},
		Resources: []string{"events"}}}})
	set("rolebindings", &monitor.RoleBinding{Meta: meta, RoleRef: monitor.RoleRef{Type: "Role", Name: pipelineRole},
		Subjects: []monitor.BoundTo{{Type: "Group", Name: pipelineRole}}})
}

// unseedNamespace removes what a namespace was made with; anything else in it is an error.
func unseedNamespace(e *table.Edit[*Item], namespace string) error {
	for _, typ := range monitor.Types {
		if !typ.Scoped {
			continue
		}
		for i := range e.Seek(place(typ.Name, namespace, "")) {
			if i.Type != typ.Name || i.Namespace != namespace {
				break
			}
			if i.Name != pipelineRole || typ.Name != "roles" && typ.Name != "rolebindings" {
				return errkind.Errorf(errkind.Conflict, "namespace %q is not empty: %s %q is in it", namespace, typ.Name, i.Name)
			}
		}
	}
	for _, typ := range []string{"roles", "rolebindings"} {
		if i := find(e, typ, namespace, pipelineRole); i != nil {
			e.Delete(i)
		}
	}
	return nil
}
