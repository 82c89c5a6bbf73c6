package tokenreview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Selector picks objects by their labels, as Kubernetes' label selectors do: all of it must hold.
type Selector struct {
	Labels map[string]string `json:"matchLabels"`
	Rules  []labelRule       `json:"matchExpressions"`
}

type labelRule struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// objectBytes bounds what is read of JSON or YAML.
const objectBytes = 64 << 10

// Decode reads an object of JSON or YAML. A member that into has not is an error.
func Decode(text string, into any) error {
	if len(text) > objectBytes {
		return fmt.Errorf("it has more than %d bytes", objectBytes)
	}
	var any any
	if err := yaml.Unmarshal([]byte(text), &any); err != nil {
		return fmt.Errorf("it is neither JSON nor YAML: %w", err)
	}
	raw, err := json.Marshal(any)
	if err != nil {
		return fmt.Errorf("it is no object with texts as names: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// ParseSelector reads a selector in JSON or YAML; one that would pick everything is refused.
func ParseSelector(text string) (*Selector, error) {
	s := &Selector{}
	if err := Decode(text, s); err != nil {
		return nil, fmt.Errorf("must be a label selector in JSON or YAML: %w", err)
	}
	if len(s.Labels) == 0 && len(s.Rules) == 0 {
		return nil, errors.New("has neither matchLabels nor matchExpressions, and would pick every namespace")
	}
	for _, r := range s.Rules {
		valued := r.Operator == "In" || r.Operator == "NotIn"
		if r.Key == "" || valued != (len(r.Values) > 0) ||
			(!valued && r.Operator != "Exists" && r.Operator != "DoesNotExist") {
			return nil, fmt.Errorf("%q %q %q is no expression: In and NotIn need values, Exists and DoesNotExist have none",
				r.Key, r.Operator, r.Values)
		}
	}
	return s, nil
}

// Picks reports whether an object with the labels is picked.
func (s *Selector) Picks(labels map[string]string) bool {
	for k, want := range s.Labels {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return !slices.ContainsFunc(s.Rules, func(r labelRule) bool {
		got, ok := labels[r.Key]
		switch r.Operator {
		case "In":
			return !ok || !slices.Contains(r.Values, got)
		case "NotIn":
			return ok && slices.Contains(r.Values, got)
		case "Exists":
			return !ok
		}
		return ok
	})
}
