package agentconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/hashicorp/hcl/hcl/parser"
	"github.com/hashicorp/hcl/hcl/token"

	"corbel.dev/corbel/kit/nesting"
)

// node is a value as HCL and JSON both have it: one of text, number, truth, list and object.
type node struct {
	kind    kind
	line    int
	text    string // of a text; of a number and a truth as they were written
	items   []*node
	entries []entry
}

type kind int

const (
	isText kind = iota
	isNumber
	isTruth
	isList
	isObject
)

func (k kind) String() string {
	return [...]string{"a text", "a number", "true or false", "a list", "a block"}[k]
}

// entry is a key of an object. A label is what stands between a block's key and its bracket.
type entry struct {
	key, label string
	line       int
	value      *node
}

// maxDepth bounds brackets in brackets: the deepest real file has six.
const maxDepth = 32

// parseTree reads HCL, or JSON where the text begins with a bracket. Errors begin with the line.
func parseTree(text []byte) (*node, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if line := nesting.Deeper(text, maxDepth); line > 0 {
		return nil, fmt.Errorf("%d: more than %d brackets in one another", line, maxDepth)
	}
	if b := bytes.TrimSpace(text); len(b) > 0 && b[0] == '{' {
		return parseJSON(text)
	}
	return parseHCL(text)
}

func parseHCL(text []byte) (top *node, err error) {
	defer func() {
		if p := recover(); p != nil { // the library's parser panics on some texts that are no HCL
			err = fmt.Errorf("1: the text is no HCL: %v", p)
		}
	}()
	file, err := parser.Parse(text)
	if err != nil {
		var at *parser.PosError
		if errors.As(err, &at) {
			return nil, fmt.Errorf("%d: %w", at.Pos.Line, at.Err)
		}
		return nil, fmt.Errorf("1: %w", err)
	}
	list, ok := file.Node.(*ast.ObjectList)
	if !ok {
		return nil, errors.New("1: the text is no HCL")
	}
	return fromList(list, 1)
}

func fromList(list *ast.ObjectList, line int) (*node, error) {
	n := &node{kind: isObject, line: line}
	for _, item := range list.Items {
		e := entry{line: item.Pos().Line}
		for i, k := range item.Keys {
			word, err := plain(k.Token)
			switch {
			case err != nil:
				return nil, err
			case i == 0:
				e.key = word
			case i == 1:
				e.label = word
			default:
				return nil, fmt.Errorf("%d: %s %q: one label at most", e.line, e.key, e.label)
			}
		}
		var err error
		if e.value, err = fromHCL(item.Val); err != nil {
			return nil, err
		}
		if e.label != "" && e.value.kind != isObject {
			return nil, fmt.Errorf("%d: %s %q: a block must follow", e.line, e.key, e.label)
		}
		n.entries = append(n.entries, e)
	}
	return n, nil
}

func fromHCL(v ast.Node) (*node, error) {
	switch v := v.(type) {
	case *ast.LiteralType:
		n := &node{line: v.Token.Pos.Line}
		var err error
		switch v.Token.Type {
		case token.NUMBER, token.FLOAT:
			n.kind, n.text = isNumber, v.Token.Text
		case token.BOOL:
			n.kind, n.text = isTruth, v.Token.Text
		default:
			n.text, err = plain(v.Token)
		}
		return n, err
	case *ast.ListType:
		n := &node{kind: isList, line: v.Lbrack.Line}
		for _, item := range v.List {
			one, err := fromHCL(item)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, one)
		}
		return n, nil
	case *ast.ObjectType:
		return fromList(v.List, v.Lbrace.Line)
	}
	return nil, fmt.Errorf("1: a value of an unknown form: %T", v)
}

// plain is a text without its quotes.
func plain(t token.Token) (string, error) {
	switch t.Type {
	case token.STRING, token.HEREDOC:
		s, ok := t.Value().(string)
		if !ok {
			return "", fmt.Errorf("%d: %s is no text", t.Pos.Line, t.Text)
		}
		return s, nil
	}
	return t.Text, nil
}

// jsonReader reads JSON with the lines where things stand.
type jsonReader struct {
	dec  *json.Decoder
	text []byte
	at   int64 // up to where line counts
	line int
}

func parseJSON(text []byte) (*node, error) {
	r := &jsonReader{dec: json.NewDecoder(bytes.NewReader(text)), text: text, line: 1}
	r.dec.UseNumber()
	n, err := r.value()
	if err == nil {
		if _, more := r.dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something stands behind the last bracket")
		}
	}
	if err == nil && n.kind != isObject {
		err = errors.New("the text is no object")
	}
	if err != nil {
		r.here()
		return nil, fmt.Errorf("%d: %w", r.line, err)
	}
	return n, nil
}

func (r *jsonReader) here() int {
	now := r.dec.InputOffset()
	r.line += bytes.Count(r.text[r.at:now], []byte("\n"))
	r.at = now
	return r.line
}

func (r *jsonReader) value() (*node, error) {
	t, err := r.dec.Token()
	if err != nil {
		return nil, unexpected(err)
	}
	n := &node{line: r.here()}
	switch t := t.(type) {
	case string:
		n.text = t
	case json.Number:
		n.kind, n.text = isNumber, t.String()
	case bool:
		n.kind, n.text = isTruth, strconv.FormatBool(t)
	case nil:
		return nil, errors.New("null is no value: leave the key out")
	case json.Delim:
		return n, r.inside(n, t)
	}
	return n, nil
}

func (r *jsonReader) inside(n *node, open json.Delim) error {
	n.kind = isList
	if open == '{' {
		n.kind = isObject
	}
	for r.dec.More() {
		e := entry{}
		if n.kind == isObject {
			t, err := r.dec.Token()
			if err != nil {
				return unexpected(err)
			}
			e.key, _ = t.(string) // keys are: the decoder sees to it
			e.line = r.here()
		}
		v, err := r.value()
		if err != nil {
			return err
		}
		if n.kind == isList {
			n.items = append(n.items, v)
			continue
		}
		e.value = v
		n.entries = append(n.entries, e)
	}
	_, err := r.dec.Token() // the other bracket
	return unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the text ends too early")
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
