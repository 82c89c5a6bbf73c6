// Package usage counts what tenants use. It is the pure core of the usage plane: the packages below it decide, and
// do nothing else. But for eventlog, counterstate and cache, none reads a clock, a disk or a socket, starts a
// goroutine or draws a random number: the same records in the same order give the same state and the same bytes, on
// every member and at every replay.
//
// # From an event to an estimate
//
//	door        batch, cloudevents, dogstatsd, and JSON here       bytes    -> Event
//	router      Product.Observe: check, name the field, hash       Event    -> Observation
//	log         dedup: seen before?, late?, and stored as one      Batch    -> Record with a verdict for each event
//	counter     aggregate.Counter: the shards that it owns         Record   -> chunks: hours, days, months
//	aggregator  aggregate.Partial.Merge over the counters          Partial  -> Partial
//	queries     estimate: value, bound, completeness, as of        Partial  -> Estimate
//	impure      eventlog (where records are durable), counterstate (snapshots), cache (api/respapi is its door)
//	beside      route (who owns a shard), limits (thresholds), fate (what became of one event), window (calendars)
//
// Each step takes a value and returns one. The owner of the log, of the sockets and of the clock calls them.
//
// # Invariants
//
//   - An identity is hashed once, to 128 bits, with the deployment's key. The upper 64 bits say everything about
//     where it counts: the topmost 12 are its shard, the topmost 12 to 18 its register in a sketch. So a shard is a
//     contiguous range of hashes and of registers: shards can be cut out of a counter's state and merged into
//     another's without loss, and uniques of different shards are disjoint.
//   - A product of another kind than unique has one shard for each tenant: a sum is never divided.
//   - Each observation lives in exactly one chunk of one level. Levels roll by merging, so totals are conserved.
//   - Sums are integers of 128 bits; no float touches one. Sets are exact up to exact_below; a set that became a
//     sketch stays one.
//   - Lateness is judged once, where the record is made, by the record's own time. A replay repeats the verdict.
//
// # What each step costs
//
// CPU time of one goroutine on a virtual machine with 2 cores that did other work too; one run of each benchmark.
//
//	step                                        CPU       allocations    memory
//	hash an identity (SipHash-2-4, 128 bits)    75 ns     0              -
//	decode an event: binary batch               0.85 us   2 a batch      26 bytes on the wire
//	decode an event: JSON                       3.2 us    4              -
//	decode an event: dogstatsd                  0.55 us   3              -
//	deduplicate an event with an id             0.4 us    0 amortised    28 to 33 bytes an id, at most 52
//	count a unique, exact (1,000 series)        0.3 us    0 amortised    22 bytes an identity and hour
//	count a unique, sketch                      16 ns     0              2^precision bytes a minute in use
//	add to a sum (1,000 series)                 0.2 us    0 amortised    345 bytes a series and hour of one minute
//
// What is not here: the doors' sockets, tokens, and where chunks
// live that memory does not hold (a Chunk is the unit to spill: it encodes itself).
package usage
