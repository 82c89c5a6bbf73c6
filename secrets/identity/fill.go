package identity

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Fill fills the placeholders of a template of JSON: {{identity.entity.name}} becomes a text with its quotes,
// {{identity.entity.groups.names}} a list, {{identity.entity.metadata}} an object, {{time.now}} a number. What is not
// known is empty, in its own kind; a placeholder that nobody knows is an error of kind Invalid.
func (p *Persona) Fill(template string, now time.Time) (string, error) {
	var out strings.Builder
	for {
		before, rest, more := strings.Cut(template, "{{")
		out.WriteString(before)
		if !more {
			return out.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}}")
		if !ok {
			return "", errkind.New(errkind.Invalid, "a placeholder has no end: {{ without }}")
		}
		value, ok := p.value(strings.TrimSpace(name), now)
		if !ok {
			return "", errkind.Errorf(errkind.Invalid, "there is no placeholder {{%.128s}}", strings.TrimSpace(name))
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return "", err
		}
		out.Write(raw)
		template = after
	}
}

// object fills a template, which must give one JSON object.
func (p *Persona) object(template string, now time.Time) (map[string]any, error) {
	text, err := p.Fill(template, now)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err = dec.Decode(&out); err == nil && out != nil {
		_, err = dec.Token()
	}
	if !errors.Is(err, io.EOF) || out == nil {
		return nil, errkind.New(errkind.Invalid, "it gives no JSON object")
	}
	return out, nil
}

// Claims are what a template says of the entity in a token: without the members that are the server's own, which
// somebody's metadata may be called like. An empty template says nothing.
func (p *Persona) Claims(template string, now time.Time) (map[string]any, error) {
	if template == "" {
		return map[string]any{}, nil
	}
	out, err := p.object(template, now)
	for _, name := range reserved {
		delete(out, name)
	}
	return out, err
}

// value is what a placeholder stands for; ok is false where there is none of that name.
func (p *Persona) value(name string, now time.Time) (v any, ok bool) {
	if rest, is := strings.CutPrefix(name, "time.now"); is {
		return clockValue(rest, now)
	}
	rest, is := strings.CutPrefix(name, "identity.entity.")
	if !is {
		return nil, false
	}
	groups := slices.Concat(p.Direct, p.Inherited)
	switch rest {
	case "groups.names":
		names := []string{}
		for _, g := range groups {
			names = append(names, g.Name)
		}
		return names, true
	case "groups.ids":
		ids := []string{}
		for _, g := range groups {
			ids = append(ids, g.ID)
		}
		return ids, true
	}
	if rest, is := strings.CutPrefix(rest, "aliases."); is {
		mount, rest, _ := strings.Cut(rest, ".")
		a := p.Entity.alias(func(a *Alias) bool { return a.Mount == mount })
		if a == nil {
			a = &Alias{}
		}
		return said(rest, map[string]string{"id": a.ID, "name": a.Name}, map[string]map[string]string{"metadata": a.Meta,
			"custom_metadata": a.Custom})
	}
	return said(rest, map[string]string{"id": p.Entity.ID, "name": p.Entity.Name},
		map[string]map[string]string{"metadata": p.Entity.Meta})
}

// said is one text, a whole object of texts, or one text of such an object.
func said(name string, texts map[string]string, objects map[string]map[string]string) (any, bool) {
	if text, ok := texts[name]; ok {
		return text, true
	}
	for _, kind := range slices.Sorted(maps.Keys(objects)) {
		if name == kind {
			whole := map[string]string{}
			maps.Copy(whole, objects[kind])
			return whole, true
		}
		if key, ok := strings.CutPrefix(name, kind+"."); ok {
			return objects[kind][key], true
		}
	}
	return nil, false
}

// clockValue is the time in seconds since 1970: now, or some time from now.
func clockValue(rest string, now time.Time) (any, bool) {
	if rest == "" {
		return now.Unix(), true
	}
	for prefix, sign := range map[string]time.Duration{".plus.": 1, ".minus.": -1} {
		if text, ok := strings.CutPrefix(rest, prefix); ok {
			d, err := time.ParseDuration(text)
			return now.Add(sign * d).Unix(), err == nil
		}
	}
	return nil, false
}
