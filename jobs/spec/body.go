package spec

import (
	"maps"
	"reflect"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"corbel.dev/corbel/jobs/jobwire"
)

// jobBody is a job block: a job, and what it says for its tasks.
type jobBody struct {
	jobwire.Job
	Vault *jobwire.Vault  // of tasks that have none
	Tasks []*jobwire.Task `hcl:"task"` // each is a group of its own
}

// job reads the job block.
func (p *parser) job(b *hclsyntax.Block) *jobwire.Job {
	if len(b.Labels) != 1 {
		p.problem(b.TypeRange, "job", `a job has one label, its id: job "id" { ... }`)
		return nil
	}
	p.meter(b.Body)
	var read jobBody
	p.body(b.Body, p.root, reflect.ValueOf(&read).Elem(), "job")
	j := &read.Job
	if j.ID == nil {
		j.ID = &b.Labels[0]
	}
	if j.Name == nil {
		j.Name = j.ID
	}
	for _, t := range read.Tasks {
		one := 1
		j.TaskGroups = append(j.TaskGroups, &jobwire.TaskGroup{Name: &t.Name, Count: &one, Tasks: []*jobwire.Task{t}})
	}
	for _, g := range j.TaskGroups {
		for _, n := range g.Networks {
			staticPorts(n)
		}
		for _, t := range g.Tasks {
			if t.Resources != nil {
				for _, n := range t.Resources.Networks {
					staticPorts(n)
				}
			}
			inherit(t, p.vaults[g], read.Vault)
			defaultIdentity(t)
		}
	}
	return j
}

// staticPorts sorts ports: those with a number are reserved.
func staticPorts(n *jobwire.NetworkResource) {
	var dynamic []jobwire.Port
	for _, port := range n.DynamicPorts {
		if port.Value > 0 {
			n.ReservedPorts = append(n.ReservedPorts, port)
		} else {
			dynamic = append(dynamic, port)
		}
	}
	n.DynamicPorts = dynamic
}

// inherit gives a task the rights of its group or job.
func inherit(t *jobwire.Task, from ...*jobwire.Vault) {
	for _, v := range from {
		if t.Vault == nil && v != nil {
			c := *v
			t.Vault = &c
		}
	}
}

// defaultIdentity takes the identity without a name out of the list.
func defaultIdentity(t *jobwire.Task) {
	for i, w := range t.Identities {
		if w.Name == "" || w.Name == "default" {
			t.Identity, t.Identities = w, slices.Delete(t.Identities, i, i+1)
			return
		}
	}
}

// body reads a block's body into the struct v.
func (p *parser) body(b *hclsyntax.Body, ctx *hcl.EvalContext, v reflect.Value, path string) {
	table := p.table(v.Type())
	for _, a := range attributes(b) {
		f, ok := table[a.Name]
		switch {
		case ok && isBlock(f.Type):
			p.problem(a.NameRange, path, "%s is a block: write %s { ... } without =", a.Name, a.Name)
		case ok:
			p.attribute(a, ctx, v.FieldByIndex(f.Index), path+"."+a.Name)
		case !p.sugar(a, ctx, v, path):
			p.problem(a.NameRange, path, "unknown argument %q%s", a.Name, suggest(a.Name, names(table)))
		}
	}
	for _, block := range b.Blocks {
		p.expand(block, ctx, path, func(name string, labels []string, body *hclsyntax.Body, ctx *hcl.EvalContext) {
			p.spend(10, block.TypeRange)
			p.block(found{name, labels, body, block.TypeRange}, ctx, v, table, path)
		})
	}
	finish(v)
}

// table are the fields of a struct by their names in a job file.
func (p *parser) table(t reflect.Type) map[string]jobwire.Field {
	if known, ok := p.tables[t]; ok {
		return known
	}
	table := map[string]jobwire.Field{}
	for _, f := range jobwire.Fields(t) {
		if f.HCL != "" {
			table[f.HCL] = f
		}
	}
	p.tables[t] = table
	return table
}

func names(table map[string]jobwire.Field) []string { return slices.Collect(maps.Keys(table)) }

// isBlock reports whether a field is written as a block and in no other way: maps are written in both.
func isBlock(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return t.Elem().Kind() == reflect.Struct || isBlock(t.Elem())
	case reflect.Map:
		return t.Elem().Kind() == reflect.Pointer
	}
	return false
}

// found is a block of the file, or one that a dynamic block makes.
type found struct {
	name   string
	labels []string
	body   *hclsyntax.Body
	at     hcl.Range
}

// expand calls use for a block, or for each block that a dynamic one makes.
func (p *parser) expand(b *hclsyntax.Block, ctx *hcl.EvalContext, path string,
	use func(string, []string, *hclsyntax.Body, *hcl.EvalContext)) {
	if b.Type != "dynamic" {
		use(b.Type, b.Labels, b.Body, ctx)
		return
	}
	each, content := b.Body.Attributes["for_each"], (*hclsyntax.Block)(nil)
	for _, inner := range b.Body.Blocks {
		if inner.Type == "content" {
			content = inner
		}
	}
	if len(b.Labels) != 1 || each == nil || content == nil {
		p.problem(b.TypeRange, path, `want dynamic "block" { for_each = [...] content { ... } }`)
		return
	}
	path += "." + b.Labels[0]
	iterator := b.Labels[0]
	if a := b.Body.Attributes["iterator"]; a != nil {
		if iterator = hcl.ExprAsKeyword(a.Expr); iterator == "" {
			p.problem(a.SrcRange, path, "an iterator is a plain name")
			return
		}
	}
	list, ok := p.value(each.Expr, ctx, path+".for_each")
	if !ok || list.IsNull() {
		return
	}
	if !list.CanIterateElements() {
		p.problem(each.SrcRange, path, "for_each goes over a list, a set or a map, not a %s", list.Type().FriendlyName())
		return
	}
	for i := list.ElementIterator(); i.Next(); {
		key, element := i.Element()
		if list.Type().IsSetType() {
			key = element
		}
		inner := ctx.NewChild()
		inner.Variables = map[string]cty.Value{
			iterator: cty.ObjectVal(map[string]cty.Value{"key": key, "value": element})}
		use(b.Labels[0], p.labels(b.Body.Attributes["labels"], inner, path), content.Body, inner)
	}
}

// labels are those of a block that a dynamic one makes.
func (p *parser) labels(a *hclsyntax.Attribute, ctx *hcl.EvalContext, path string) (list []string) {
	if a != nil {
		p.attribute(a, ctx, reflect.ValueOf(&list).Elem(), path+".labels")
	}
	return list
}

// block reads a block into the field of v that has its name.
func (p *parser) block(b found, ctx *hcl.EvalContext, v reflect.Value, table map[string]jobwire.Field, path string) {
	f, ok := table[b.name]
	if group, is := v.Addr().Interface().(*jobwire.TaskGroup); is && b.name == "vault" {
		vault := &jobwire.Vault{}
		p.vaults[group] = vault
		p.body(b.body, ctx, reflect.ValueOf(vault).Elem(), path+".vault")
		return
	}
	if !ok {
		p.problem(b.at, path, "unknown block %q%s", b.name, suggest(b.name, names(table)))
		return
	}
	field := v.FieldByIndex(f.Index)
	path += "." + b.name
	switch t := f.Type; {
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		if !field.IsNil() {
			p.problem(b.at, path, "there is one %s block at most", b.name)
		}
		field.Set(reflect.New(t.Elem()))
		p.labelled(b, ctx, field.Elem(), path)
	case t.Kind() == reflect.Slice && isBlock(t):
		element := reflect.New(t.Elem())
		of := element.Elem()
		if of.Kind() == reflect.Pointer {
			of.Set(reflect.New(t.Elem().Elem()))
			of = of.Elem()
		}
		p.labelled(b, ctx, of, path)
		field.Set(reflect.Append(field, element.Elem()))
	case t.Kind() == reflect.Map && isBlock(t):
		element := reflect.New(t.Elem().Elem())
		if name := p.labelled(b, ctx, element.Elem(), path); name != "" {
			if field.IsNil() {
				field.Set(reflect.MakeMap(t))
			}
			if field.MapIndex(reflect.ValueOf(name)).IsValid() {
				p.problem(b.at, path, "%q is there twice", name)
			}
			field.SetMapIndex(reflect.ValueOf(name), element)
		}
	case t.Kind() == reflect.Map:
		p.mapBlock(b, ctx, field, path)
	default:
		p.problem(b.at, path, "%s is an argument: write %s = ...", b.name, b.name)
	}
}

// labelled reads a block with its label into the struct v, and returns the label.
func (p *parser) labelled(b found, ctx *hcl.EvalContext, v reflect.Value, path string) (label string) {
	at := slices.IndexFunc(jobwire.Fields(v.Type()), func(f jobwire.Field) bool { return f.Label })
	scaling, isScaling := v.Addr().Interface().(*jobwire.ScalingPolicy) // a group's has none
	switch {
	case isScaling && len(b.labels) == 1:
		scaling.Type = b.labels[0]
	case at < 0 && len(b.labels) > 0:
		p.problem(b.at, path, "a %s block has no label", b.name)
	case at >= 0 && len(b.labels) == 1:
		label = b.labels[0]
		if field := v.FieldByIndex(jobwire.Fields(v.Type())[at].Index); field.Kind() == reflect.Pointer {
			field.Set(reflect.ValueOf(&label))
		} else {
			field.SetString(label)
		}
		path += "." + label
	case at >= 0:
		p.problem(b.at, path, "a %s block has one label: %s \"name\" { ... }", b.name, b.name)
	}
	p.body(b.body, ctx, v, path)
	return label
}

// mapBlock reads a block whose names are free: env, meta, config and the like.
func (p *parser) mapBlock(b found, ctx *hcl.EvalContext, field reflect.Value, path string) {
	if len(b.labels) > 0 {
		p.problem(b.at, path, "a %s block has no label", b.name)
	}
	if !field.IsNil() {
		p.problem(b.at, path, "there is one %s block at most", b.name)
	}
	if free, ok := field.Addr().Interface().(*map[string]any); ok {
		*free = p.free(b.body, ctx, path)
		return
	}
	for _, inner := range b.body.Blocks {
		p.problem(inner.TypeRange, path, "a %s block has arguments alone", b.name)
	}
	m := reflect.MakeMap(field.Type())
	for _, a := range attributes(b.body) {
		element := reflect.New(field.Type().Elem()).Elem()
		if p.attribute(a, ctx, element, path+"."+a.Name) {
			m.SetMapIndex(reflect.ValueOf(a.Name), element)
		}
	}
	field.Set(m)
}

// free reads a body that has no shape of ours: a block is a list of objects, as drivers know it.
func (p *parser) free(b *hclsyntax.Body, ctx *hcl.EvalContext, path string) map[string]any {
	m := map[string]any{}
	for _, a := range attributes(b) {
		if v, ok := p.value(a.Expr, ctx, path+"."+a.Name); ok && !v.IsNull() {
			m[a.Name] = p.native(v, a.SrcRange)
		}
	}
	for _, block := range b.Blocks {
		p.expand(block, ctx, path, func(name string, labels []string, body *hclsyntax.Body, ctx *hcl.EvalContext) {
			p.spend(10, block.TypeRange)
			var element any = p.free(body, ctx, path+"."+name)
			for _, label := range slices.Backward(labels) {
				element = map[string]any{label: []any{element}}
			}
			list, isList := m[name].([]any)
			if m[name] != nil && !isList {
				p.problem(block.TypeRange, path, "%s is an argument and a block", name)
				return
			}
			m[name] = append(list, element)
		})
	}
	return m
}

// sugar reads the short forms of constraints and affinities: regexp = "...", distinct_hosts = true.
func (p *parser) sugar(a *hclsyntax.Attribute, ctx *hcl.EvalContext, v reflect.Value, path string) bool {
	short := []string{"regexp", "version", "semver", "set_contains", "set_contains_all", "set_contains_any"}
	var left, right, operand *string
	switch r := v.Addr().Interface().(type) {
	case *jobwire.Constraint:
		left, right, operand = &r.LTarget, &r.RTarget, &r.Operand
		short = append(short, "distinct_hosts", "distinct_property")
	case *jobwire.Affinity:
		left, right, operand = &r.LTarget, &r.RTarget, &r.Operand
	default:
		return false
	}
	if !slices.Contains(short, a.Name) {
		return false
	}
	*operand = a.Name
	if a.Name == "distinct_property" {
		right = left
	}
	p.attribute(a, ctx, reflect.ValueOf(right).Elem(), path+"."+a.Name)
	return true
}

// finish gives a condition without an operator the usual one.
func finish(v reflect.Value) {
	switch r := v.Addr().Interface().(type) {
	case *jobwire.Constraint:
		if r.Operand == "" {
			r.Operand = "="
		}
		if r.Operand == "distinct_hosts" && r.RTarget == "true" {
			r.RTarget = ""
		}
	case *jobwire.Affinity:
		if r.Operand == "" {
			r.Operand = "="
		}
	}
}
