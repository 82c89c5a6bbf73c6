// Package spec reads job files: HCL2 with variables, locals, functions, for expressions and dynamic blocks,
// into the API's job (NC-2, NC-6, NC-7). The command line and POST /v1/jobs/parse call the same Parse.
//
// The names of blocks and arguments are those of package jobwire's structs. An unknown name is an error that
// proposes the nearest one. All problems of a file are reported at once, each with its place and
// its field. References that only a node can resolve (${attr.kernel.name}, ${NOMAD_PORT_http}, ${meta.rack}) stay
// as they are written.
//
// A tenant's file is bounded: its bytes, how deep it nests, and the steps that it takes. A step is an
// expression that is evaluated, an element of its value, or 64 bytes of it, so that neither nested loops nor
// texts that double use more than a second or more memory than the limit in steps is worth. A file that
// asks for more is an error, never a partial job.
//
// Parse is pure: time, chance and files come in by Options.
package spec
