// Package auditing has every request and every answer recorded, and answers for the devices (sys/audit).
//
// Invariants. While there is a device, nothing is done and no answer is given that none has recorded. Devices are
// part of the tables: they are opened with them and closed after the last request that saw them, and a declared one
// is as the configuration says. Records and Redeclare may be called from any goroutine; Redeclare while the seal does
// not change.
package auditing
