package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/hcl/ast"
	"github.com/hashicorp/hcl/hcl/parser"
	"github.com/hashicorp/hcl/hcl/token"
)

const (
	// maxFileBytes bounds one file: 40,000 service definitions take about 12 MB.
	maxFileBytes = 16 << 20
	// maxDepth bounds nesting: the deepest real configuration (config of an
	// upstream of a sidecar of a service) has about ten levels.
	maxDepth = 64
)

// blocks are HCL's repeated `name { }` blocks in file order.
type blocks []map[string]any

func (l *loader) file(path, format string) {
	f, err := os.Open(path)
	if err != nil {
		l.fail(fmt.Sprintf("%v; check the -config-file path", err))
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		l.dir(path, format)
		return
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		l.fail(err.Error())
		return
	}
	if ext := strings.TrimPrefix(filepath.Ext(path), "."); ext == "hcl" || ext == "json" {
		format = ext
	}
	l.bytes(path, text, format)
}

// dir reads the *.hcl and *.json files of a folder, not those of folders below it.
func (l *loader) dir(path, format string) {
	entries, err := os.ReadDir(path) // in lexical order
	if err != nil {
		l.fail(fmt.Sprintf("%v; check the -config-dir path", err))
		return
	}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if e.IsDir() || ext != ".hcl" && ext != ".json" && format == "" {
			continue
		}
		l.file(filepath.Join(path, e.Name()), format)
	}
}

// bytes parses one source and applies it. Without a format the content decides.
func (l *loader) bytes(from string, text []byte, format string) {
	tree, err := parse(text, format)
	if err != nil {
		l.fail(fmt.Sprintf("%s: %v", from, err))
		return
	}
	l.text = text
	l.apply(tree, "", from)
	l.text = nil
}

// parse turns HCL or JSON into a tree of map[string]any, blocks, []any, string,
// bool, json.Number and nil.
func parse(text []byte, format string) (map[string]any, error) {
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("is larger than %d bytes; split it into several files", maxFileBytes)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if format == "" {
		format = "hcl"
		if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
			format = "json"
		}
	}
	switch format {
	case "json":
		return parseJSON(text)
	case "hcl":
		return parseHCL(text)
	}
	return nil, fmt.Errorf("unknown format %q; -config-format takes hcl or json", format)
}

func parseJSON(text []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := jsonValue(d, 0)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("there is more after the first object")
		}
	}
	if err != nil {
		line := 1 + bytes.Count(text[:min(int(d.InputOffset()), len(text))], []byte("\n"))
		return nil, fmt.Errorf("line %d: %w", line, err)
	}
	tree, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("must be an object at the top, got %s", kindOf(v))
	}
	return tree, nil
}

// jsonValue reads one value and refuses doubled names and deep nesting.
func jsonValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nests deeper than %d levels", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			if _, twice := object[name.(string)]; twice {
				return nil, fmt.Errorf("the name %q is given twice", name)
			}
			if object[name.(string)], err = jsonValue(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			item, err := jsonValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		_, err = d.Token()
		return list, err
	}
	return t, nil
}

func parseHCL(text []byte) (tree map[string]any, err error) {
	if nesting(text) > maxDepth {
		return nil, fmt.Errorf("nests deeper than %d levels", maxDepth)
	}
	// The parser of HCL1 is finished software with known panics on broken input.
	defer func() {
		if r := recover(); r != nil {
			tree, err = nil, fmt.Errorf("is not valid HCL: %v", r)
		}
	}()
	file, err := parser.Parse(text) // refuses doubled attributes
	if err != nil {
		return nil, err
	}
	list, ok := file.Node.(*ast.ObjectList)
	if !ok {
		return nil, errors.New("must hold options at the top")
	}
	return hclObject(list)
}

// nesting is the deepest bracket level outside strings and comments. It is an
// upper bound that keeps the recursive parser off the end of its stack.
func nesting(text []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"' && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '#':
			i = skipPast(text, i, "\n")
		case '/':
			if bytes.HasPrefix(text[i:], []byte("//")) {
				i = skipPast(text, i, "\n")
			} else if bytes.HasPrefix(text[i:], []byte("/*")) {
				i = skipPast(text, i+2, "*/")
			}
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth = max(depth-1, 0)
		}
	}
	return deepest
}

// skipPast gives the index of the last byte of the next mark, or the end.
func skipPast(text []byte, i int, mark string) int {
	if n := bytes.Index(text[i:], []byte(mark)); n >= 0 {
		return i + n + len(mark) - 1
	}
	return len(text)
}

// hclObject turns an object list into a map; a name used by several blocks gives blocks.
func hclObject(list *ast.ObjectList) (map[string]any, error) {
	object := map[string]any{}
	for _, item := range list.Items {
		names := make([]string, len(item.Keys))
		for i, k := range item.Keys {
			name, ok := k.Token.Value().(string)
			if !ok {
				return nil, fmt.Errorf("line %d: a name must be a word or a string", k.Token.Pos.Line)
			}
			names[i] = name
		}
		if len(names) == 0 {
			return nil, errors.New("a value has no name")
		}
		v, err := hclValue(item.Val)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", names[0], err)
		}
		// block "label" { } is { label = { } } inside block.
		for _, label := range slices.Backward(names[1:]) {
			v = blocks{{label: v}}
		}
		block, isBlock := v.(blocks)
		before, taken := object[names[0]]
		earlier, wasBlock := before.(blocks)
		switch {
		case !taken:
			object[names[0]] = v
		case isBlock && wasBlock:
			object[names[0]] = append(earlier, block...)
		default:
			return nil, fmt.Errorf("line %d: %s is given twice", item.Pos().Line, names[0])
		}
	}
	return object, nil
}

func hclValue(node ast.Node) (any, error) {
	switch node := node.(type) {
	case *ast.ObjectType:
		object, err := hclObject(node.List)
		return blocks{object}, err
	case *ast.ListType:
		list := make([]any, 0, len(node.List))
		for _, item := range node.List {
			v, err := hclValue(item)
			if err != nil {
				return nil, err
			}
			if b, ok := v.(blocks); ok && len(b) == 1 {
				v = b[0]
			}
			list = append(list, v)
		}
		return list, nil
	case *ast.LiteralType:
		if node.Token.Type == token.NUMBER || node.Token.Type == token.FLOAT {
			if !json.Valid([]byte(node.Token.Text)) {
				return json.Number(fmt.Sprint(node.Token.Value())), nil // hexadecimal, octal
			}
			return json.Number(node.Token.Text), nil
		}
		return node.Token.Value(), nil
	}
	return nil, fmt.Errorf("has a value of an unknown kind")
}

// apply gives each value of a tree to its key. Names are matched without case.
func (l *loader) apply(tree map[string]any, prefix, from string) {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		path := prefix + strings.ToLower(name)
		v := tree[name]
		if _, isKey := l.schema.keys[path]; isKey || oldNames[path] != "" || ignoredKeys[path] != "" {
			l.set(path, v, from)
			continue
		}
		if !l.schema.sections[path] {
			l.unknown(path, from)
			continue
		}
		switch v := v.(type) {
		case nil:
		case map[string]any:
			l.apply(v, path+".", from)
		case blocks:
			for _, block := range v {
				l.apply(block, path+".", from)
			}
		case []any:
			for _, item := range v { // JSON written by HCL tools: a list of one object
				if object, ok := item.(map[string]any); ok {
					l.apply(object, path+".", from)
				} else {
					l.fail(fmt.Sprintf("%s: %s must be an object, got %s", from, path, kindOf(item)))
				}
			}
		default:
			l.fail(fmt.Sprintf("%s: %s must be an object, got %s", from, path, kindOf(v)))
		}
	}
}

// set gives one value to a key; from is empty for defaults.
func (l *loader) set(path string, v any, from string) {
	if v == nil {
		return
	}
	if why, ok := ignoredKeys[path]; ok {
		l.warn(fmt.Sprintf("%s has no effect: %s", path, why))
		return
	}
	asked := path
	if canonical, ok := oldNames[path]; ok {
		if !quietNames[path] {
			l.warn(fmt.Sprintf("%s is the old name of %s", path, canonical))
		}
		path = canonical
	}
	k, ok := l.schema.keys[path]
	if !ok {
		l.unknown(path, from)
		return
	}
	if text, ok := v.(string); ok && k.value.Type() == reflect.TypeFor[[]string]() &&
		strings.HasPrefix(from, "the variable") {
		v = splitList(text)
	}
	if err := k.assign(v); err != nil {
		l.fail(fmt.Sprintf("%s: %s %v", from, asked, err))
		return
	}
	if from != "" {
		l.cfg.loaded.origins[path] = from
	}
}

func splitList(text string) []any {
	var list []any
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// Tree parses HCL or JSON ("" lets the content decide) for a reader with keys of its own: objects are
// map[string]any, a name of several blocks gives a []any of them, numbers are json.Number.
func Tree(text []byte, format string) (map[string]any, error) {
	tree, err := parse(text, format)
	if err != nil {
		return nil, err
	}
	return plain(tree), nil
}
