// Package feed carries values of named subjects from servers to agents: one
// multiplexed stream per agent, on which each followed subject is owed its
// newest value.
//
// A subject names a value, not a log: a follower may miss values between two,
// never the last one, and never sees an older value after a newer one. So what
// waits for a slow follower is a set of subjects, bounded by what it follows,
// and resuming is a comparison of indexes. Values are immutable and shared by
// reference; the package does not look into them.
package feed

import "time"

// Value is what a subject says at an index.
type Value struct {
	Index uint64    // of the write that made it, at least 1; of one generation the greater is newer
	At    time.Time // when that write was applied at the server; zero if unknown
	Body  []byte    // nil: there is nothing under this subject

	// Generation names the history that Index belongs to, the same on all servers that
	// share it: indexes of two generations (another cluster, a state that was put in
	// place of this one) say nothing about each other. Sources with one history leave it 0.
	Generation uint64

	// Since, when the value says the same as the one before it, is the index of that one: who knows the value as of
	// Since knows it as of Index, and who knows another one of between has to be told. 0: it says something else.
	// It is for servers and is not sent.
	Since uint64

	// Steady, when not 0, is the index from which on the subject has said this, at all up to Index: who knows it as of one
	// of these knows it as of Index. It is for a source that gives a value the index of what may not have changed it, and
	// is not sent.
	Steady uint64

	// Tail is how many of Body's last bytes agents of a release before protocol version 2 are not sent: they refuse what
	// they do not know. It is for servers and is not sent.
	Tail int
}

// Identity is who follows: the agent, as its connection proved, and the token
// that it gave for this subject.
type Identity struct {
	Node  string
	Token string
}

// Source is what a server takes values from.
type Source interface {
	// Follow calls set with the subject's value of now before it returns (or as soon as the
	// source knows one, when it has only just begun), and then after each change, in order and never twice at once,
	// until stop is called; after stop has returned it is not called again. set does not block. A source that looked
	// after several changes and finds what there was before gives it again, with Since: an agent may come with what was
	// between, from a server that looked earlier. An error of kind Denied
	// says that the identity may not follow the subject. When a right ends later, denied is called once, and set no
	// more; stop is called nevertheless.
	Follow(who Identity, subject string, set func(Value), denied func(error)) (stop func(), err error)
	// Newest is the index of the newest write that all values called out so far take into account, and its generation.
	Newest() (generation, index uint64)
}

// Follower is the side of the agent: what a Client gives over the network, and Local within a server.
type Follower interface {
	// Follow calls set with the subject's newest value once it is known, and after
	// each change, until stop is called. It survives servers and their absence: an
	// error that lasts (Denied, Invalid) is given to failed, and tried again now and then.
	//
	// set and failed are called in order and never twice at once, perhaps before Follow
	// returns, and may call Follow and stop. stop does not wait: a call that is under way may end after it, none begins.
	Follow(subject, token string, set func(Value), failed func(error)) (stop func())
}
