package autoauth

import "sync"

// Tokens holds the token that is in use. It is safe for concurrent use.
type Tokens struct {
	mu      sync.Mutex // guards both
	token   string
	changed chan struct{} // closed when token is another
}

// NewTokens holds a token; "" is none yet.
func NewTokens(token string) *Tokens { return &Tokens{token: token, changed: make(chan struct{})} }

// Get is the token, "" before there is one, and a channel that is closed when it is another.
func (t *Tokens) Get() (string, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token, t.changed
}

func (t *Tokens) set(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token == t.token {
		return
	}
	t.token = token
	close(t.changed)
	t.changed = make(chan struct{})
}
