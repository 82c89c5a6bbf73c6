package dnsapi

import (
	"net"
	"syscall"

	"golang.org/x/net/ipv4"
)

// sharesPorts: on Windows one socket of those that share a port gets all questions, so there is one.
const sharesPorts = false

func reusePort(string, string, syscall.RawConn) error { return nil }

// batches reads and writes one datagram in a call. At a wildcard address the system chooses where a reply comes from.
func batches(_ endpoint, conn *net.UDPConn) (batcher, error) { return single{conn}, nil }

type single struct{ conn *net.UDPConn }

// ReadBatch implements batcher.
func (s single) ReadBatch(ms []ipv4.Message, _ int) (int, error) {
	n, from, err := s.conn.ReadFromUDP(ms[0].Buffers[0])
	if err != nil {
		return 0, err
	}
	ms[0].N, ms[0].NN, ms[0].Addr = n, 0, from
	return 1, nil
}

// WriteBatch implements batcher.
func (s single) WriteBatch(ms []ipv4.Message, _ int) (int, error) {
	if _, err := s.conn.WriteTo(ms[0].Buffers[0], ms[0].Addr); err != nil {
		return 0, err
	}
	return 1, nil
}
