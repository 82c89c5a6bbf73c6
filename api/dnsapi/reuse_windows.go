package dnsapi

import "syscall"

// sharesPorts: on Windows one socket of those that share a port gets all questions, so there is one.
const sharesPorts = false

func reusePort(string, string, syscall.RawConn) error { return nil }
