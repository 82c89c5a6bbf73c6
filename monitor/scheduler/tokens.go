package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"

	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/substitute"
)

// fill returns a check with the tokens of an entity put in. An error names the token that has no value.
func fill(c *monitor.CheckConfig, e *monitor.EntityConfig) (*monitor.CheckConfig, error) {
	out := *c
	data, err := substitute.NewData(monitor.Join(e, nil))
	if err != nil {
		return nil, err
	}
	if err := data.Check(&out); err != nil {
		return nil, err
	}
	out.ProxyEntityName = e.Name
	return &out, nil
}

// harmless refuses a check whose tokens could run without end: checks are written by users of a namespace, and their
// tokens for proxy entities run here, between the ticks of all others. On an agent they would only hold up their own.
func harmless(c *monitor.CheckConfig) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	var tree any
	if err := json.Unmarshal(b, &tree); err != nil {
		return err
	}
	return harmlessTexts(tree)
}

func harmlessTexts(value any) error {
	switch v := value.(type) {
	case string:
		if !strings.Contains(v, "{{") {
			return nil
		}
		t, err := template.New("").Funcs(template.FuncMap{"default": func(...any) any { return nil },
			"assetPath": func(string) string { return "" }}).Parse(v)
		if err == nil && t.Tree != nil {
			err = harmlessNode(t.Root, false)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", v, err)
		}
	case []any:
		for _, inner := range v {
			if err := harmlessTexts(inner); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, inner := range v {
			if err := harmlessTexts(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// harmlessNode allows a loop over what an entity has many of, and neither a loop within it nor calls, which may call
// themselves.
func harmlessNode(n parse.Node, looping bool) error {
	both := func(a, b *parse.ListNode, looping bool) error {
		err := harmlessNode(a, looping)
		if err == nil && b != nil {
			err = harmlessNode(b, looping)
		}
		return err
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, inner := range n.Nodes {
			if err := harmlessNode(inner, looping); err != nil {
				return err
			}
		}
	case *parse.IfNode:
		return both(n.List, n.ElseList, looping)
	case *parse.WithNode:
		return both(n.List, n.ElseList, looping)
	case *parse.RangeNode:
		if looping || len(n.Pipe.Cmds) != 1 || len(n.Pipe.Cmds[0].Args) != 1 ||
			n.Pipe.Cmds[0].Args[0].Type() != parse.NodeField {
			return errors.New("a token may loop over a field of the entity only, and not within another loop")
		}
		return both(n.List, n.ElseList, true)
	case *parse.TemplateNode:
		return errors.New("a token may not call a template")
	}
	return nil
}
