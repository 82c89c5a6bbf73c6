// Package entry knows the config entries of the service mesh: their kinds and
// fields (contract section 20), how they are read from JSON with field names in
// any of the two spellings, what makes one valid, and their canonical JSON.
//
// Decode and Entry.Validate are the way in; Encode is the way out and to disk.
// Invariants: an Entry that Decode returned is normal (defaults and precedences
// are set) and valid; Encode of equal entries gives equal bytes; nothing here
// looks at other entries but Graph, which is given all that matter.
package entry
