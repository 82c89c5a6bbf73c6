package hothttp

import (
	"net/http"
	"sync/atomic"
	"time"
)

// dated is a rendered Date header and the second it holds for.
type dated struct {
	second int64
	text   []byte
}

var lastDate atomic.Pointer[dated]

// dateHeader renders the Date header once a second.
func dateHeader() []byte {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dated{second: now.Unix(), text: []byte("Date: " + now.UTC().Format(http.TimeFormat) + "\r\n")}
	lastDate.Store(d)
	return d.text
}
