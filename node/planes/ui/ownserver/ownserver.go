// Package ownserver is what the server whose web UI is looked at knows of itself: its Raft groups and their snapshots,
// its disk and certificate, what its proxies took, and what its members said of their gossip keys. It asks nobody and
// waits for no disk; whoever calls has made sure that the person may see it. Any goroutine may call it.
package ownserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/telemetry"
)

// Group is a Raft group of this server.
type Group struct {
	Name   string `json:"name"`
	Leader string `json:"leader"`
	Leads  bool   `json:"leads"`
	// LagMillis is how much older than the leader's may be what is here.
	LagMillis int64  `json:"lagMillis"`
	Applied   uint64 `json:"applied"`
	Term      uint64 `json:"term"`
	Fsyncs    uint64 `json:"fsyncs"`
	LogBytes  uint64 `json:"logBytes"` // 0 in memory
	// Snapshot is the newest one; nil before the first.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// Snapshot is a snapshot on this server's disk.
type Snapshot struct {
	Bytes uint64 `json:"bytes"`
	Index uint64 `json:"index"` // of the last entry that it has
	At    int64  `json:"at"`    // ms since 1970; 0 is not known
}

// Groups are the Raft groups of this server.
func Groups(d *plane.Doors) []Group {
	rows := []Group{}
	for _, g := range d.AllGroups() {
		row := Group{Name: g.Name, Leads: g.IsLeader(), LagMillis: g.Lag().Milliseconds(), Fsyncs: g.Fsyncs()}
		_, row.Leader = g.Leader()
		for _, m := range d.Pool.Members(member.ActShow) {
			if id, _ := g.Leader(); id != "" && m.Tags["id"] == id {
				row.Leader = m.Name
			}
		}
		if r := g.Raft.Load(); r != nil {
			row.Applied, row.Term = r.AppliedIndex(), r.Term()
			stats := r.Stats()
			row.LogBytes, row.Snapshot = number(stats["log_bytes"]), snapshotOf(stats)
		}
		rows = append(rows, row)
	}
	return rows
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // "" where there is none: 0
	return n
}

// snapshotOf is the newest snapshot, from the figures of a group.
func snapshotOf(stats map[string]string) *Snapshot {
	if stats["snapshot_bytes"] == "" {
		return nil
	}
	s := &Snapshot{Bytes: number(stats["snapshot_bytes"]), Index: number(stats["last_snapshot_index"])}
	if at, err := time.Parse(time.RFC3339, stats["snapshot_time"]); err == nil {
		s.At = at.UnixMilli()
	}
	return s
}

// CertificateEnd is when this server's own certificate ends, in ms since 1970; 0 without one.
func CertificateEnd(d *plane.Doors) int64 {
	end := d.Certs.End.Load()
	if end == 0 {
		return 0
	}
	return time.Unix(end, 0).UnixMilli()
}

// Disk is the file system of this server's data folder. Sizes are in bytes.
type Disk struct {
	Path      string `json:"path"`
	Size      uint64 `json:"size"`
	Available uint64 `json:"available"`
}

// DiskOf is the disk as it was sampled last; nil where there is none, or nothing samples it.
func DiskOf(r *telemetry.Registry) *Disk {
	var d Disk
	for _, s := range r.Series() {
		if !strings.HasPrefix(s.Name, "host.disk.") || s.Declared {
			continue
		}
		v, ok := s.GaugeValue()
		if !ok || v < 0 {
			continue
		}
		switch s.Name {
		case "host.disk.size":
			d.Size = uint64(v)
		case "host.disk.available":
			d.Available = uint64(v)
		}
		for _, l := range s.Labels {
			if l.Name == "path" {
				d.Path = l.Value
			}
		}
	}
	if d.Size == 0 {
		return nil
	}
	return &d
}

// Key is a gossip key of a pool. It is known by a part of its hash: a key itself is a secret.
type Key struct {
	Pool    string `json:"pool"` // LAN, WAN
	Name    string `json:"name"`
	Members int    `json:"members"` // that have it
	Primary int    `json:"primary"` // that encrypt with it
	Of      int    `json:"of"`      // members of the pool
}

// Keys are the keys that members told of, in the answer of /v1/operator/keyring.
func Keys(answer []byte) []Key {
	var pools []struct {
		WAN               bool
		Keys, PrimaryKeys map[string]int
		NumNodes          int
	}
	rows := []Key{}
	if json.Unmarshal(answer, &pools) != nil {
		return rows
	}
	for _, p := range pools {
		pool := "LAN"
		if p.WAN {
			pool = "WAN"
		}
		for key, n := range p.Keys {
			sum := sha256.Sum256([]byte(key))
			rows = append(rows, Key{Pool: pool, Name: hex.EncodeToString(sum[:4]), Members: n, Primary: p.PrimaryKeys[key],
				Of: p.NumNodes})
		}
	}
	slices.SortFunc(rows, func(a, b Key) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), cmp.Compare(b.Primary, a.Primary), strings.Compare(a.Name, b.Name))
	})
	return rows
}
