package registry

import (
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
)

// Mode is the consistency that a read asks for.
type Mode uint8

// The modes.
const (
	Default    Mode = iota // the leader, under its lease
	Consistent             // the leader, after a quorum round
	Stale                  // any server
)

// Contact tells how near to the leader a read was.
type Contact struct {
	KnownLeader bool
	LastContact time.Duration
	Leader      bool
}

// Topic is a kind of change.
type Topic uint8

// The topics. Those without a key are about the whole table.
const (
	TopicKV       Topic = iota + 1 // key: one pair
	TopicKVPrefix                  // key: a prefix of any length
	// key: a service name: instances and what connects to it, with their checks and nodes
	TopicService
	TopicServices      // the list of services
	TopicNodes         // the list of nodes
	TopicNode          // key: a node, its services and checks
	TopicChecks        // all checks
	TopicNodeChecks    // key: a node's checks
	TopicServiceChecks // key: the checks of a service's instances
	TopicSessions      // all sessions
	TopicSession       // key: a session's ID
	TopicRecords       // key: RecordsSubject's: all records of a kind
	TopicRecord        // key: RecordSubject's: one record
	TopicCatalog       // any instance, check, node and config entry: for answers made of several of them
)

// Subject is what a watcher watches. Names of nodes and services are matched without regard to case.
type Subject struct {
	Topic Topic
	Key   string
}

// RecordsSubject is every record of the kind.
func RecordsSubject(kind catalog.RecordKind) Subject {
	return Subject{TopicRecords, string(rune(kind))}
}

// RecordSubject is one record of the kind.
func RecordSubject(kind catalog.RecordKind, key string) Subject {
	return Subject{TopicRecord, string(rune(kind)) + key}
}

func (s Subject) normal() Subject {
	switch s.Topic {
	case TopicService, TopicNode, TopicNodeChecks, TopicServiceChecks:
		s.Key = strings.ToLower(s.Key)
	}
	return s
}
