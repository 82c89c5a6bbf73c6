package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/hashicorp/hcl/hcl/parser"
	"github.com/hashicorp/hcl/hcl/token"

	"corbel.dev/corbel/kit/nesting"
)

// object is what braces hold, in HCL and in JSON alike, in the order of the
// text. Values are string, float64, bool, []any, object or nil.
type object []member

type member struct {
	line  int
	key   string
	value any
}

// The bounds of a policy's text.
const (
	maxTextBytes = 1 << 20
	maxNesting   = 16
)

// read makes the tree of a text in either form.
func read(text string) (tree object, err error) {
	switch {
	case len(text) > maxTextBytes:
		return nil, fmt.Errorf("the policy has %d bytes, more than %d", len(text), maxTextBytes)
	case !utf8.ValidString(text):
		return nil, errors.New("the policy is not valid UTF-8")
	}
	if nesting.Deeper(text, maxNesting) > 0 {
		return nil, fmt.Errorf("the policy nests deeper than %d levels", maxNesting)
	}
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return readJSON(text)
	}
	defer func() { // the library panics on some texts that its scanner lets pass
		if p := recover(); p != nil {
			tree, err = nil, fmt.Errorf("cannot read the policy: %v", p)
		}
	}()
	file, err := parser.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	list, ok := file.Node.(*ast.ObjectList)
	if !ok {
		return nil, errors.New("the policy is no list of blocks")
	}
	return fromList(list)
}

// fromList makes an object of HCL's list: `path "x" {` is the same as `path = { "x" = {`.
func fromList(list *ast.ObjectList) (object, error) {
	var out object
	for _, item := range list.Items {
		if len(item.Keys) == 0 {
			return nil, fmt.Errorf("line %d: a block without a name", item.Pos().Line)
		}
		value, err := fromNode(item.Val)
		if err != nil {
			return nil, err
		}
		line := item.Keys[0].Pos().Line
		for i := len(item.Keys) - 1; i > 0; i-- {
			value = object{{line, keyText(item.Keys[i]), value}}
		}
		out = append(out, member{line, keyText(item.Keys[0]), value})
	}
	return out, nil
}

func keyText(k *ast.ObjectKey) string {
	s, _ := k.Token.Value().(string)
	return s
}

func fromNode(n ast.Node) (any, error) {
	switch v := n.(type) {
	case *ast.ObjectType:
		return fromList(v.List)
	case *ast.ListType:
		list := []any{}
		for _, item := range v.List {
			value, err := fromNode(item)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	case *ast.LiteralType:
		switch x := v.Token.Value().(type) {
		case int64:
			return float64(x), nil
		case string, float64, bool:
			return x, nil
		}
		if v.Token.Type == token.HEREDOC {
			return v.Token.Text, nil
		}
	}
	return nil, fmt.Errorf("line %d: a value of no known kind", n.Pos().Line)
}

func readJSON(text string) (object, error) {
	r := &jsonReader{text: text, dec: json.NewDecoder(strings.NewReader(text))}
	value, err := r.value()
	if err != nil {
		return nil, err
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: something follows the policy", r.line())
	}
	tree, ok := value.(object)
	if !ok {
		return nil, errors.New("the policy is no object")
	}
	return tree, nil
}

// jsonReader reads JSON token by token: a doubled key is to be seen, and the order kept.
type jsonReader struct {
	text string
	dec  *json.Decoder
}

func (r *jsonReader) line() int {
	return 1 + strings.Count(r.text[:min(int(r.dec.InputOffset()), len(r.text))], "\n")
}

func (r *jsonReader) value() (any, error) {
	t, err := r.dec.Token()
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", r.line(), err)
	}
	switch t {
	case json.Delim('{'):
		return r.object()
	case json.Delim('['):
		list := []any{}
		for r.dec.More() {
			v, err := r.value()
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := r.dec.Token()
		return list, err
	}
	return t, nil
}

func (r *jsonReader) object() (any, error) {
	out := object{}
	for r.dec.More() {
		line := r.line()
		key, err := r.dec.Token()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		out = append(out, member{line, key.(string), value})
	}
	_, err := r.dec.Token()
	return out, err
}
