// Package uplink tells how fast the network card is at which an address of this host stands, and how many packets it
// and its queue have dropped. What a system does not tell is zero: most virtual cards have no speed.
package uplink

// State is that of a card.
type State struct {
	// Speed is the card's, in bytes a second; zero is unknown.
	Speed float64
	// Dropped are packets that found no room, on their way out or in, since the card came up.
	Dropped uint64
}
