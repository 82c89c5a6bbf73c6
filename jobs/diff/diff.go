// Package diff tells how two versions of a job differ, as the answer to a plan has it (NA-10, NC-3), and says
// of each change what it forces.
//
// Jobs are canonical. Groups and tasks are matched by name, so are services, checks and volumes; constraints, templates
// and other things without a name are added or deleted, never edited. An edited object has its unchanged fields
// too when the caller wants context. Everything is in the order of its name: the same jobs give the same diff.
//
// What the servers write (indexes, versions, status) and tokens are left out. The package is pure.
package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
)

// The types of changes.
const (
	None    = "None"
	Added   = "Added"
	Deleted = "Deleted"
	Edited  = "Edited"
)

// Job is how a job differs.
type Job struct {
	Type, ID   string
	Fields     []*Field
	Objects    []*Object
	TaskGroups []*Group
}

// Group is how a group differs; Updates counts what happens to its allocations.
type Group struct {
	Type, Name string
	Fields     []*Field
	Objects    []*Object
	Tasks      []*Task
	Updates    map[string]uint64
}

// Task is how a task differs.
type Task struct {
	Type, Name  string
	Fields      []*Field
	Objects     []*Object
	Annotations []string
}

// Field is a value of one name.
type Field struct {
	Type, Name, Old, New string
	Annotations          []string
}

// Object is something that has fields.
type Object struct {
	Type, Name string
	Fields     []*Field
	Objects    []*Object
}

// Fields that are told elsewhere, or are not what somebody asked for.
var (
	notOfJob = []string{"ID", "TaskGroups", "Update", "Reschedule", "Migrate", "Status", "StatusDescription", "Version",
		"VersionTag", "Stable", "SubmitTime", "CreateIndex", "ModifyIndex", "JobModifyIndex", "ConsulToken", "VaultToken",
		"NomadTokenID", "Dispatched", "DispatchIdempotencyToken"}
	notOfGroup = []string{"Name", "Tasks"}
	notOfTask  = []string{"Name"}
)

// singular is what one of a list is called.
var singular = map[string]string{"Constraints": "Constraint", "Affinities": "Affinity", "Spreads": "Spread",
	"Networks": "Network", "Services": "Service", "Checks": "Check", "Templates": "Template", "Artifacts": "Artifact",
	"VolumeMounts": "VolumeMount", "Volumes": "Volume", "Devices": "Device", "DynamicPorts": "Dynamic Port",
	"ReservedPorts": "Static Port", "Identities": "Identity", "Upstreams": "ConsulUpstreams", "Actions": "Action",
	"ScalingPolicies": "Scaling", "Secrets": "Secret", "Links": "Link", "Regions": "Region", "Paths": "Path",
	"Listeners": "Listener"}

// Jobs compares two versions; either may be nil. With context, edited objects have their unchanged fields.
func Jobs(from, to *jobwire.Job, context bool) (*Job, error) {
	d := differ{context}
	out := &Job{Type: kind(from == nil, to == nil), ID: jobwire.Get(idOf(from, to))}
	if from == nil && to == nil {
		return &Job{Type: None}, nil
	}
	if from != nil && to != nil && jobwire.Get(from.ID) != jobwire.Get(to.ID) {
		return nil, errkind.Errorf(errkind.Invalid, "jobs with different ids (%q and %q) are not compared",
			jobwire.Get(from.ID), jobwire.Get(to.ID))
	}
	out.Fields, out.Objects = d.parts(reflect.ValueOf(from), reflect.ValueOf(to), notOfJob, false)
	name := func(g *jobwire.TaskGroup) string { return jobwire.Get(g.Name) }
	for _, pair := range match(groups(from), groups(to), name) {
		if g := d.group(pair[0], pair[1]); g.Type != None {
			out.TaskGroups = append(out.TaskGroups, g)
		}
	}
	if out.Type == Edited && len(out.Fields)+len(out.Objects)+len(out.TaskGroups) == 0 {
		out.Type = None
	}
	return out, nil
}

func idOf(from, to *jobwire.Job) *string {
	if to != nil {
		return to.ID
	}
	if from != nil {
		return from.ID
	}
	return nil
}

func groups(j *jobwire.Job) []*jobwire.TaskGroup {
	if j == nil {
		return nil
	}
	return j.TaskGroups
}

// kind is the type of a change between what there may not be; Edited still has to be looked at.
func kind(noOld, noNew bool) string {
	switch {
	case noOld && noNew:
		return None
	case noOld:
		return Added
	case noNew:
		return Deleted
	}
	return Edited
}

// match pairs what has the same name, in the order of the names. One of a pair is nil when the other is alone.
func match[T any](from, to []*T, name func(*T) string) (pairs [][2]*T) {
	at := map[string]int{}
	for side, list := range [2][]*T{from, to} {
		for _, v := range list {
			i, ok := at[name(v)]
			if !ok || pairs[i][side] != nil {
				i = len(pairs)
				at[name(v)] = i
				pairs = append(pairs, [2]*T{})
			}
			pairs[i][side] = v
		}
	}
	key := func(p [2]*T) string {
		if p[0] != nil {
			return name(p[0])
		}
		return name(p[1])
	}
	slices.SortStableFunc(pairs, func(a, b [2]*T) int { return cmp.Compare(key(a), key(b)) })
	return pairs
}

type differ struct{ context bool }

func (d differ) group(from, to *jobwire.TaskGroup) *Group {
	g := &Group{Type: kind(from == nil, to == nil)}
	var tasks [2][]*jobwire.Task
	for side, group := range [2]*jobwire.TaskGroup{from, to} {
		if group != nil {
			g.Name, tasks[side] = jobwire.Get(group.Name), group.Tasks
		}
	}
	g.Fields, g.Objects = d.parts(reflect.ValueOf(from), reflect.ValueOf(to), notOfGroup, false)
	for _, pair := range match(tasks[0], tasks[1], func(t *jobwire.Task) string { return t.Name }) {
		if t := d.task(pair[0], pair[1]); t.Type != None {
			g.Tasks = append(g.Tasks, t)
		}
	}
	if g.Type == Edited && len(g.Fields)+len(g.Objects)+len(g.Tasks) == 0 {
		g.Type = None
	}
	return g
}

func (d differ) task(from, to *jobwire.Task) *Task {
	t := &Task{Type: kind(from == nil, to == nil)}
	if from != nil {
		t.Name = from.Name
	} else {
		t.Name = to.Name
	}
	t.Fields, t.Objects = d.parts(reflect.ValueOf(from), reflect.ValueOf(to), notOfTask, false)
	if t.Type == Edited && len(t.Fields)+len(t.Objects) == 0 {
		t.Type = None
	}
	return t
}

// parts compares two pointers to structs of one type, of which one may be nil. Values that are missing are "".
func (d differ) parts(from, to reflect.Value, without []string, unchanged bool) (fields []*Field, objects []*Object) {
	old, now := map[string]string{}, map[string]string{}
	for _, f := range jobwire.Fields(from.Type().Elem()) {
		if slices.Contains(without, f.Name) {
			continue
		}
		a, b := at(from, f), at(to, f)
		if isObject(f.Type) {
			objects = append(objects, d.object(f.Name, a, b)...)
			continue
		}
		if !from.IsNil() {
			flatten(f.Name, a, old)
		}
		if !to.IsNil() {
			flatten(f.Name, b, now)
		}
	}
	slices.SortStableFunc(objects, func(a, b *Object) int { return cmp.Compare(a.Name, b.Name) })
	return compare(old, now, unchanged), objects
}

// at is a field of what v points to, its zero value when that is nil.
func at(v reflect.Value, f jobwire.Field) reflect.Value {
	if v.IsNil() {
		return reflect.Zero(f.Type)
	}
	return v.Elem().FieldByIndex(f.Index)
}

// isObject reports whether values of a type are told as objects: all but scalars, and maps of texts.
func isObject(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer:
		return t.Elem().Kind() == reflect.Struct
	case reflect.Slice:
		return t.Elem().Kind() != reflect.Uint8
	case reflect.Map:
		return t.Elem().Kind() != reflect.String
	}
	return false
}

// flatten writes a value as fields: Env[A], args[0]. Empty values are as good as none.
func flatten(name string, v reflect.Value, into map[string]string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			flatten(name, v.Elem(), into)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			flatten(fmt.Sprintf("%s[%s]", name, key), v.MapIndex(key), into)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			into[name] = string(v.Bytes())
			return
		}
		for i := range v.Len() {
			flatten(fmt.Sprintf("%s[%d]", name, i), v.Index(i), into)
		}
	case reflect.String:
		into[name] = v.String()
	case reflect.Bool:
		into[name] = strconv.FormatBool(v.Bool())
	default:
		if v.CanInt() {
			into[name] = strconv.FormatInt(v.Int(), 10) // durations are nanoseconds
		} else if v.CanUint() {
			into[name] = strconv.FormatUint(v.Uint(), 10)
		} else {
			into[name] = fmt.Sprint(v.Interface())
		}
	}
}

// compare lists the fields that differ, or all when unchanged ones are wanted.
func compare(old, now map[string]string, unchanged bool) (list []*Field) {
	names := make([]string, 0, len(old)+len(now))
	for name := range old {
		names = append(names, name)
	}
	for name := range now {
		if _, both := old[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		f := &Field{Type: kind(old[name] == "", now[name] == ""), Name: name, Old: old[name], New: now[name]}
		if f.Old == f.New {
			f.Type = None
		}
		if f.Type != None || unchanged && f.New != "" {
			list = append(list, f)
		}
	}
	return list
}

// object compares what is told as objects, under the name of one of them.
func (d differ) object(name string, a, b reflect.Value) []*Object {
	if s, ok := singular[name]; ok {
		name = s
	}
	switch t := a.Type(); {
	case t.Kind() == reflect.Pointer:
		if o := d.one(name, a, b); o != nil {
			return []*Object{o}
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return d.words(name, a, b)
	case t.Kind() == reflect.Slice && holdsStructs(t):
		return d.list(name, elements(a), elements(b))
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Pointer:
		return d.list(name, elements(a), elements(b))
	default: // a driver's configuration, headers
		old, now := map[string]string{}, map[string]string{}
		flattenBelow(a, old)
		flattenBelow(b, now)
		o := &Object{Type: kind(a.Len() == 0, b.Len() == 0), Name: name}
		if o.Fields = compare(old, now, false); len(o.Fields) > 0 {
			o.Fields = compare(old, now, d.context && o.Type == Edited)
			return []*Object{o}
		}
	}
	return nil
}

func flattenBelow(v reflect.Value, into map[string]string) {
	if v.Kind() == reflect.Map {
		for _, key := range v.MapKeys() {
			flatten(key.String(), v.MapIndex(key), into)
		}
		return
	}
	for i := range v.Len() {
		flatten(strconv.Itoa(i), v.Index(i), into)
	}
}

func holdsStructs(t reflect.Type) bool {
	e := t.Elem()
	return e.Kind() == reflect.Struct || e.Kind() == reflect.Pointer && e.Elem().Kind() == reflect.Struct
}

// one compares two pointers to structs; nil when they do not differ.
func (d differ) one(name string, a, b reflect.Value) *Object {
	o := &Object{Type: kind(a.IsNil(), b.IsNil()), Name: name}
	if o.Type == None {
		return nil
	}
	o.Fields, o.Objects = d.parts(a, b, nil, false)
	if o.Type == Edited {
		if len(o.Fields)+len(o.Objects) == 0 {
			return nil
		}
		if d.context {
			o.Fields, _ = d.parts(a, b, nil, true)
		}
	}
	return o
}

// words compares lists of texts as sets.
func (d differ) words(name string, a, b reflect.Value) []*Object {
	o := &Object{Type: kind(a.Len() == 0, b.Len() == 0), Name: name}
	old, now := a.Interface().([]string), b.Interface().([]string)
	changed := false
	for _, word := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(old, now)))) {
		f := &Field{Type: kind(!slices.Contains(old, word), !slices.Contains(now, word)), Name: name}
		switch f.Type {
		case Added:
			f.New = word
		case Deleted:
			f.Old = word
		default:
			f.Type, f.Old, f.New = None, word, word
		}
		changed = changed || f.Type != None
		if f.Type != None || d.context {
			o.Fields = append(o.Fields, f)
		}
	}
	if !changed {
		return nil
	}
	return []*Object{o}
}

// element is one of a list, with what it is matched by: its name, or all that it says.
type element struct {
	v     reflect.Value // a pointer
	key   string
	named bool
}

func elements(v reflect.Value) (list []*element) {
	add := func(e reflect.Value) {
		if e.Kind() != reflect.Pointer {
			p := reflect.New(e.Type())
			p.Elem().Set(e)
			e = p
		}
		one := &element{v: e}
		for _, name := range []string{"Name", "Label"} {
			if f := e.Elem().FieldByName(name); f.IsValid() && f.Kind() == reflect.String && f.String() != "" {
				one.key, one.named = f.String(), true
				break
			}
		}
		if !one.named {
			data, err := json.Marshal(e.Interface())
			if err != nil { // what cannot be written differs from everything
				data = fmt.Appendf(nil, "%p", e.Interface())
			}
			one.key = string(data)
		}
		list = append(list, one)
	}
	if v.Kind() == reflect.Map {
		for _, key := range v.MapKeys() {
			add(v.MapIndex(key))
		}
		return list
	}
	for i := range v.Len() {
		add(v.Index(i))
	}
	return list
}

func (d differ) list(name string, from, to []*element) (list []*Object) {
	for _, pair := range match(from, to, func(e *element) string { return e.key }) {
		a, b := pair[0], pair[1]
		var left, right reflect.Value
		switch {
		case a == nil:
			left, right = reflect.Zero(b.v.Type()), b.v
		case b == nil:
			left, right = a.v, reflect.Zero(a.v.Type())
		default:
			left, right = a.v, b.v
		}
		if o := d.one(name, left, right); o != nil {
			list = append(list, o)
		}
	}
	return list
}
