package monitor

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MarshalJSON writes the id as the text of a UUID, null for none.
func (id ID) MarshalJSON() ([]byte, error) {
	if len(id) == 0 {
		return []byte("null"), nil
	}
	var b [16]byte
	copy(b[:], id)
	return fmt.Appendf(nil, `"%x-%x-%x-%x-%x"`, b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}

// UnmarshalJSON reads the text of a UUID; null and all zeros are none.
func (id *ID) UnmarshalJSON(b []byte) error {
	*id = nil
	if string(b) == "null" {
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if text == "" {
		return nil
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != 16 || len(text) != 36 && len(text) != 32 {
		return fmt.Errorf("id: %q is not a UUID", text)
	}
	if [16]byte(raw) != [16]byte{} {
		*id = raw
	}
	return nil
}

// MarshalJSON writes the check with empty lists of subscriptions, handlers and pipelines where there are none, not
// null: clients walk them.
func (c *Check) MarshalJSON() ([]byte, error) {
	type plain Check
	shown := plain(*c)
	fillLists(&shown.Subscriptions, &shown.Handlers, &shown.Pipelines)
	return json.Marshal(&shown)
}

// MarshalJSON is as that of Check.
func (c *CheckConfig) MarshalJSON() ([]byte, error) {
	type plain CheckConfig
	shown := plain(*c)
	fillLists(&shown.Subscriptions, &shown.Handlers, &shown.Pipelines)
	return json.Marshal(&shown)
}

func fillLists(subscriptions, handlers *[]string, pipelines *[]*Ref) {
	if *subscriptions == nil {
		*subscriptions = []string{}
	}
	if *handlers == nil {
		*handlers = []string{}
	}
	if *pipelines == nil {
		*pipelines = []*Ref{}
	}
}

// MarshalJSON writes the entity with the values of sensitive labels and annotations hidden.
func (e *Entity) MarshalJSON() ([]byte, error) {
	type plain Entity
	shown := plain(*e)
	shown.Meta = RedactMeta(e.Meta, e.Redact)
	return json.Marshal(shown)
}

// MarshalJSON writes the list as an object of its type alone: {"non-zero": ["ps"]}.
func (l HookList) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string][]string{l.Type: l.Hooks})
}

// UnmarshalJSON reads an object with one type.
func (l *HookList) UnmarshalJSON(b []byte) error {
	var m map[string][]string
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("check_hooks: %w", err)
	}
	if len(m) != 1 {
		return fmt.Errorf("check_hooks: an entry has one type of hook, not %d", len(m))
	}
	for l.Type, l.Hooks = range m {
	}
	return nil
}

// requestJSON is a check request as JSON has it, where the assets of hooks are an object.
type requestJSON struct {
	*plainRequest
	HookAssets map[string]*AssetList `json:"hook_assets"`
}

type plainRequest CheckRequest

// MarshalJSON writes the request as agents read it that speak JSON.
func (r *CheckRequest) MarshalJSON() ([]byte, error) {
	out := requestJSON{plainRequest: (*plainRequest)(r)}
	for i := range r.HookAssets {
		if out.HookAssets == nil {
			out.HookAssets = map[string]*AssetList{}
		}
		out.HookAssets[r.HookAssets[i].Hook] = &r.HookAssets[i].Assets
	}
	return json.Marshal(out)
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (r *CheckRequest) UnmarshalJSON(b []byte) error {
	in := requestJSON{plainRequest: (*plainRequest)(r)}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	r.HookAssets = nil
	for _, hook := range slices.Sorted(maps.Keys(in.HookAssets)) {
		if list := in.HookAssets[hook]; list != nil {
			r.HookAssets = append(r.HookAssets, HookAsset{Hook: hook, Assets: *list})
		}
	}
	return nil
}
