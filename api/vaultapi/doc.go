// Package vaultapi is the HTTP contract of Vault's clients: it decodes requests
// for the keeper and encodes its answers, and decides nothing else.
//
// Every answer is JSON with "Cache-Control: no-store" but for raw bodies; an
// error is {"errors": [...]} with the contract's status. The eight keys of the
// envelope are always there. Safe for concurrent use.
package vaultapi
