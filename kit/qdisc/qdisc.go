// Package qdisc tells what the traffic scheduler of each network card of this host dropped, and put back because the
// card was busy, since the card came up. It sees the network namespace that the process is in.
package qdisc

// Counts are those of a card's root discipline; the kernel adds up its children.
type Counts struct{ Dropped, Requeued uint64 }
