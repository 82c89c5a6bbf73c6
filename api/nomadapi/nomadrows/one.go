package nomadrows

import (
	"net/http"

	"corbel.dev/corbel/jobs"
)

// Object is a Reading of one object that an id names.
type Object[T comparable] struct {
	Table     Table
	Missing   string // the text of 404
	Find      func(v View, id jobs.ID) T
	Modified  func(T) uint64
	Namespace func(T) string // whose right is asked; nil asks for none
	Right     Capability
	Show      func(v View, item T) (any, error)
}

// One answers a row that reads an object by the id in the path, under the name that the argument has there.
func One[T comparable](q *Request, arg string, o Object[T]) error {
	id, err := q.ID(arg)
	if err != nil {
		return err
	}
	var none T
	return q.Read(Reading{
		Watch: Watch{Table: o.Table, ID: id},
		Index: func(v View) uint64 {
			if item := o.Find(v, id); item != none {
				return o.Modified(item)
			}
			return v.Index(o.Table)
		},
		Answer: func(v View) (any, error) {
			item := o.Find(v, id)
			if item == none {
				return nil, &Refusal{http.StatusNotFound, o.Missing}
			}
			if o.Namespace != nil {
				if err := q.May(o.Namespace(item), o.Right); err != nil {
					return nil, err
				}
			}
			return o.Show(v, item)
		},
	})
}

// HasPrefix reports whether an id begins with a prefix, without regard to hyphens that are missing.
func HasPrefix(id jobs.ID, prefix string) bool {
	if prefix == "" {
		return true
	}
	text := id.String()
	return len(prefix) <= len(text) && text[:len(prefix)] == prefix
}
