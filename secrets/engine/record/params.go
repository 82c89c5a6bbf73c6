package record

import (
	"encoding/json"
	"fmt"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// Param is one parameter: its name in the API and where it is kept, a pointer to a bool,
// int, string, []string, map[string]string or time.Duration (whole seconds).
type Param struct {
	Name string
	At   any
}

// Params are the parameters of one object.
type Params []Param

// Read takes those that were given; the others stay as they are.
func (p Params) Read(f *secrets.Fields) error {
	for _, one := range p {
		if !f.Has(one.Name) {
			continue
		}
		switch at := one.At.(type) {
		case *bool:
			*at = f.Bool(one.Name, *at)
		case *int:
			*at = f.Int(one.Name, *at)
		case *string:
			*at = f.String(one.Name)
		case *[]string:
			*at = f.Strings(one.Name)
		case *map[string]string:
			*at = f.Texts(one.Name)
		case *time.Duration:
			if *at = f.Duration(one.Name, 0); *at < 0 {
				return errkind.Errorf(errkind.Invalid, "field %q: must not be negative", one.Name)
			}
		default:
			panic(fmt.Sprintf("record: no parameters are kept in %T", one.At))
		}
	}
	return f.Err()
}

// Show writes all of them into an object of the API.
func (p Params) Show(into map[string]any) {
	for _, one := range p {
		switch at := one.At.(type) {
		case *time.Duration:
			into[one.Name] = int64(*at / time.Second)
		case *[]string:
			if into[one.Name] = *at; *at == nil {
				into[one.Name] = []string{}
			}
		case *map[string]string:
			if into[one.Name] = *at; *at == nil {
				into[one.Name] = map[string]string{}
			}
		case *bool:
			into[one.Name] = *at
		case *int:
			into[one.Name] = *at
		case *string:
			into[one.Name] = *at
		}
	}
}

// Encode gives them as they are stored.
func (p Params) Encode() ([]byte, error) {
	m := make(map[string]any, len(p))
	p.Show(m)
	return json.Marshal(m)
}

// Decode reads what Encode gave.
func (p Params) Decode(raw []byte) error {
	f, err := secrets.ParseFields(raw)
	if err == nil {
		err = p.Read(&f)
	}
	if err != nil {
		return errkind.Errorf(errkind.Corrupt, "a record is not what was stored: %w", err)
	}
	return nil
}
