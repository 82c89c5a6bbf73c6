package profile

import (
	"encoding/json"
	"io"
	"time"
)

// node is a frame as a page draws it: its name, what was spent in it and below, and what it called.
type node struct {
	Name  string `json:"n"`
	Value int64  `json:"v"`
	Calls []node `json:"c,omitempty"`
}

// Tree writes a compressed profile as JSON: when it was taken, and its frames, without those that are too thin or stand
// too high to be seen.
func Tree(w io.Writer, compressed []byte, at time.Time) error {
	root, err := stack(compressed, "all")
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(map[string]any{"at": at.UnixMilli(), "root": root.node(root.value, 0)})
}

func (f *frame) node(total int64, level int) node {
	n := node{Name: f.name, Value: f.value}
	if level == deepest {
		return n
	}
	for _, c := range f.sorted() {
		if total > 0 && float64(c.value)/float64(total) >= thinnest {
			n.Calls = append(n.Calls, c.node(total, level+1))
		}
	}
	return n
}
