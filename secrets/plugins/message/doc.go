// Package message has the messages that Vault's plug-ins of secrets engines and auth methods speak (version 5 of their
// protocol), and encodes them as protocol buffers.
//
// A message is a struct whose fields name their number in a tag: `pb:"3"`. What a message of a newer plug-in has beside
// these fields is passed over. Only facts of the wire are here; nothing decides anything.
package message
