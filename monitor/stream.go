package monitor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/kit/tagproto"
)

// TCPStreamHandler sends events as lines of JSON over connections that stay (pipeline/v1). Pipelines alone refer to it.
type TCPStreamHandler struct {
	Meta              `json:"metadata,omitempty" pb:"1"`
	Address           string         `json:"address" pb:"2"` // host:port
	CACert            string         `json:"tls_ca_cert_file,omitempty" pb:"3"`
	Cert              string         `json:"tls_cert_file,omitempty" pb:"4"`
	KeyFile           string         `json:"tls_key_file,omitempty" pb:"5"`
	MaxConnections    uint32         `json:"max_connections" pb:"6"`               // 0 is as many as a handler has workers
	MinReconnectDelay string         `json:"min_reconnect_delay,omitempty" pb:"7"` // a duration; 10ms
	MaxReconnectDelay string         `json:"max_reconnect_delay,omitempty" pb:"8"` // 10s
	Extra             tagproto.Extra `json:"-"`
}

// StreamHandlerKind is what pipelines call it.
const StreamHandlerKind = "TCPStreamHandler"

// Validate returns what is wrong with the handler.
func (h *TCPStreamHandler) Validate() error {
	if err := named("handler", h.Name); err != nil {
		return err
	}
	if h.Namespace == "" {
		return errNamespace
	}
	if at := strings.LastIndexByte(h.Address, ':'); at < 1 || at == len(h.Address)-1 {
		return fmt.Errorf("address %q is not host:port", h.Address)
	}
	if (h.Cert == "") != (h.KeyFile == "") {
		return errors.New("tls_cert_file and tls_key_file must be set together")
	}
	_, _, err := h.Delays()
	return err
}

// Delays returns the shortest and the longest pause before a connection is tried again.
func (h *TCPStreamHandler) Delays() (least, most time.Duration, err error) {
	least, most = 10*time.Millisecond, 10*time.Second
	for _, d := range []struct {
		field, text string
		out         *time.Duration
	}{{"min_reconnect_delay", h.MinReconnectDelay, &least}, {"max_reconnect_delay", h.MaxReconnectDelay, &most}} {
		if d.text == "" {
			continue
		}
		if *d.out, err = time.ParseDuration(d.text); err != nil || *d.out < time.Millisecond || *d.out > time.Hour {
			return 0, 0, fmt.Errorf("%s %q must be a duration from 1ms to 1h", d.field, d.text)
		}
	}
	if least > most {
		return 0, 0, fmt.Errorf("min_reconnect_delay %s is more than max_reconnect_delay %s", least, most)
	}
	return least, most, nil
}
