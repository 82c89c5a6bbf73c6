package sensurest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"corbel.dev/corbel/api/sensuapi/mergepatch"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/objects"
)

// object answers requests for objects of the configuration.
func (q *request) object() error {
	if q.kind.serve != nil {
		if err := q.kind.serve(q); !errors.Is(err, errCommon) {
			return err
		}
	}
	if len(q.rest) > 0 {
		return errNotFound
	}
	if err := q.may(q.verb(), q.kind.resource, q.namespace, q.name); err != nil {
		return err
	}
	return q.common()
}

// common answers what all kinds have in common, once access was decided.
func (q *request) common() error {
	switch {
	case q.r.Method == http.MethodGet || q.r.Method == http.MethodHead:
		if q.name == "" {
			return lists{q}.all()
		}
		return q.get()
	case q.name == "" && (!q.kind.Scoped || q.namespace != ""):
		if q.r.Method != http.MethodPost {
			return q.notAllowed("GET, POST")
		}
		return q.write(objects.Create)
	case q.name == "":
		return q.notAllowed("GET")
	}
	switch q.r.Method {
	case http.MethodPut:
		return q.write(objects.Put)
	case http.MethodPatch:
		return patches{q}.apply()
	case http.MethodDelete:
		return q.remove()
	}
	return q.notAllowed("GET, PUT, PATCH, DELETE")
}

// find returns the object that the request names.
func (q *request) find() (*objects.Item, error) {
	item := q.cfg.Resources.View().Get(q.kind.Name, q.namespace, q.name)
	if item == nil {
		return nil, errNotFound
	}
	return item, nil
}

// etag names a version of an object.
func etag(item *objects.Item) string {
	sum := sha256.Sum256(item.Encoded)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

func (q *request) get() error {
	item, err := q.find()
	if err != nil {
		return err
	}
	tag := etag(item)
	q.w.Header().Set("ETag", tag)
	if list := q.r.Header.Get("If-None-Match"); list != "" && names(list, tag) {
		q.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	v, err := q.view(item.Object())
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, v)
}

// names reports whether a list of tags has one, or is * for any.
func names(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == "*" || one == tag {
			return true
		}
	}
	return false
}

// condition makes a write hold only where the request's If-Match and If-None-Match do; item is what is there, or nil.
func (q *request) condition(op *objects.Op, item *objects.Item) error {
	match, none := q.r.Header.Get("If-Match"), q.r.Header.Get("If-None-Match")
	if match != "" {
		if item == nil || !names(match, etag(item)) {
			return errPrecondition
		}
		op.If = item.Index
	}
	if none == "" {
		return nil
	}
	switch {
	case item == nil:
		op.Verb = objects.Create
	case names(none, etag(item)):
		return errPrecondition
	default:
		op.If = item.Index
	}
	return nil
}

// place puts the path's namespace and name where a body leaves them out, and refuses others.
func (q *request) place(o monitor.Object) error {
	namespace, name := &q.namespace, &q.name
	switch o := o.(type) {
	case *monitor.Namespace:
		return same("name", &o.Name, *name)
	case *monitor.User:
		return same("username", &o.Username, *name)
	case interface{ ObjectMeta() *monitor.Meta }:
		meta := o.ObjectMeta()
		if !q.kind.Scoped && meta.Namespace != "" {
			return fmt.Errorf("metadata.namespace: %s belongs to no namespace", q.kind.Kind)
		}
		if err := same("metadata.namespace", &meta.Namespace, *namespace); err != nil {
			return err
		}
		return same("metadata.name", &meta.Name, *name)
	}
	return nil
}

// same fills in a field that the path says too, where it is empty.
func same(field string, value *string, path string) error {
	if *value == "" {
		*value = path
	}
	if path != "" && *value != path {
		return fmt.Errorf("%s %q does not match %q in the path", field, *value, path)
	}
	return nil
}

// ready makes an object fit to be written; old is what it replaces, or nil.
func (q *request) ready(o monitor.Object, old *objects.Item) error {
	var former monitor.Object
	if old != nil {
		former = old.Object()
	}
	if err := q.place(o); err != nil {
		return invalid(err)
	}
	if q.kind.admit != nil {
		if err := q.kind.admit(q, former, o); err != nil {
			return err
		}
	}
	if m, ok := o.(interface{ ObjectMeta() *monitor.Meta }); ok {
		m.ObjectMeta().CreatedBy = q.who.User
	}
	if err := o.Validate(); err != nil {
		return invalid(err)
	}
	return q.review(o)
}

// write creates or replaces an object.
func (q *request) write(verb objects.Verb) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	o, err := q.read(b)
	if err != nil {
		return invalid(err)
	}
	if q.name == "" {
		if err := q.place(o); err != nil {
			return invalid(err)
		}
	}
	_, name := o.Key()
	if q.name != "" {
		name = q.name
	}
	return q.store(verb, o, q.cfg.Resources.View().Get(q.kind.Name, q.namespace, name))
}

// store writes an object that was decoded, over old where that is not nil, and says that it is done.
func (q *request) store(verb objects.Verb, o monitor.Object, old *objects.Item) error {
	if err := q.save(verb, o, old); err != nil {
		return err
	}
	return q.done()
}

// save writes an object that was decoded, over old where that is not nil, and leaves the answer to the caller.
func (q *request) save(verb objects.Verb, o monitor.Object, old *objects.Item) error {
	if verb == objects.Create && old != nil {
		return errExists
	}
	if err := q.ready(o, old); err != nil {
		return err
	}
	op := q.op(verb, o)
	if err := q.condition(&op, old); err != nil {
		return err
	}
	return q.commit(op)
}

func (q *request) op(verb objects.Verb, o monitor.Object) objects.Op {
	namespace, name := o.Key()
	return objects.Op{Verb: verb, Type: q.kind.Name, Namespace: namespace, Name: name, Encoded: tagproto.Append(nil, o)}
}

// commit writes, with the contract's words for what is there already.
func (q *request) commit(ops ...objects.Op) error {
	if q.dry() {
		return nil
	}
	err := q.cfg.Resources.Write(q.r.Context(), ops...)
	if errkind.Is(err, errkind.Conflict) && !errors.Is(err, objects.ErrPrecondition) {
		if ops[0].Verb == objects.Create && q.r.Header.Get("If-None-Match") == "" {
			return errExists
		}
		return errPrecondition
	}
	return err
}

func (q *request) remove() error {
	item, err := q.find()
	if err != nil {
		return err
	}
	op := objects.Op{Verb: objects.Delete, Type: q.kind.Name, Namespace: q.namespace, Name: q.name}
	if err := q.condition(&op, item); err != nil {
		return err
	}
	op.Verb = objects.Delete
	if err := q.cfg.Resources.Write(q.r.Context(), op); err != nil {
		return err
	}
	return q.done()
}

// patchTries is how often a patch is made anew because the object changed meanwhile.
const patchTries = 5

// patches changes parts of an object.
type patches struct{ *request }

func (q patches) apply() error {
	switch t := q.r.Header.Get("Content-Type"); t {
	case "", "application/merge-patch+json":
	case "application/json-patch+json":
		return invalid(errors.New("JSON Patch is not supported yet"))
	default:
		return invalid(fmt.Errorf("invalid Content-Type header: %q", t))
	}
	change, err := q.body()
	if err != nil {
		return err
	}
	for range patchTries {
		var item *objects.Item
		if item, err = q.find(); err != nil {
			return err
		}
		var o monitor.Object
		if o, err = q.applied(item, change); err != nil {
			return err
		}
		op := q.op(objects.Put, o)
		op.If = item.Index
		if err := q.condition(&op, item); err != nil {
			return err
		}
		op.Verb = objects.Put
		if err = q.commit(op); err == nil {
			return q.get()
		}
		conditional := q.r.Header.Get("If-Match") != "" || q.r.Header.Get("If-None-Match") != ""
		if !errors.Is(err, objects.ErrPrecondition) || conditional {
			return err
		}
	}
	return err
}

// applied makes the object that a merge patch leaves.
func (q patches) applied(item *objects.Item, change []byte) (monitor.Object, error) {
	shown, err := q.view(item.Object())
	if err != nil {
		return nil, err
	}
	merged, err := mergepatch.Apply(shown, change)
	if err != nil {
		return nil, invalid(err)
	}
	o, err := q.read(merged)
	if err != nil {
		return nil, invalid(err)
	}
	return o, q.ready(o, item)
}

// scopes answers what is asked of namespaces.
type scopes struct{ *request }

// one answers what is special about namespaces: everybody sees those that some role reaches, and one that is
// not empty stays.
func (q scopes) one() error {
	if len(q.rest) > 0 {
		return errNotFound
	}
	switch {
	case q.name == "" && (q.r.Method == http.MethodGet || q.r.Method == http.MethodHead):
		access := q.cfg.Resources.View().Access()
		return lists(q).where(func(i *objects.Item) bool { return access.Reaches(q.who, i.Name) })
	case q.name != "" && q.r.Method == http.MethodDelete:
		if err := q.may("delete", "namespaces", "", q.name); err != nil {
			return err
		}
		err := q.remove()
		if errkind.Is(err, errkind.Conflict) { // as the reference answers
			return &apiError{http.StatusInternalServerError, codeInternal, err.Error()}
		}
		return err
	}
	return errCommon
}

func (q scopes) remove() error {
	for e, err := range q.cfg.Events.List(q.r.Context(), ingest.Range{Namespace: q.name, Most: 1}) {
		if err != nil {
			return err
		}
		if q.cfg.Resources.View().Get("namespaces", "", q.name) != nil {
			return errkind.Errorf(errkind.Conflict, "namespace %q is not empty: there are events of entity %q in it",
				q.name, e.Entity)
		}
		break
	}
	return q.request.remove()
}

// sub serves paths below an object: it wants exactly these elements behind its name, where * is any.
func (q *request) sub(method string, pattern ...string) bool {
	return q.r.Method == method && slices.EqualFunc(q.rest, pattern, func(word, p string) bool {
		return p == "*" ||
			p == word
	})
}
