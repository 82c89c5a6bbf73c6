// Package cloudjoin finds the members of a cluster where addresses are not known before: it asks a cloud's API which
// machines carry a tag, as retry_join entries of the form "provider=aws tag_key=role tag_value=server" say it.
//
// Parse reads such an Entry and does nothing else. An Asker asks: in a child process, which is the same binary, for
// one entry at a time. The clouds' libraries take no deadline and keep what they have learnt; a child is ended when
// its time is over, and what it held is given back. A credential goes to the child by its standard input, and is in
// no log and no error.
package cloudjoin
