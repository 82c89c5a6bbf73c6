// Package runs keeps what a check went through: a History has the newest runs one by one, a Past all of them as spans
// of one status. Both are values of a few dozen bytes, without a lock: a monitor holds one of each for every check on
// every entity.
package runs
