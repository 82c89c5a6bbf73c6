package neterr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
)

// What the kernel of this host says, through what package net makes of it.
func TestKinds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_, err = net.Listen("tcp", addr)
	if !InUse(err) || Refused(err) || Broken(err) {
		t.Errorf("a taken port: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	_, err = d.DialContext(context.Background(), "tcp", addr)
	if !Refused(err) || InUse(err) || Broken(err) {
		t.Errorf("nobody listens: %v", err)
	}
	if !Broken(fmt.Errorf("read: %w", syscall.ECONNRESET)) || Broken(nil) || InUse(errors.New("in use")) {
		t.Error("broken")
	}
}
