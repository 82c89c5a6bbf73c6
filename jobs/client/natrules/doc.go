// Package natrules are the packet filter's rules of the bridge that allocations hang on: what is published at addresses
// of the host is led inside, and what goes out is seen with the host's address. They are one table of nftables of its
// own, spoken to by netlink; no rule of anybody else is touched.
//
// What always holds:
//   - A change happens whole or not at all, and no packet sees half of it.
//   - Published ports are elements of one map: what a packet costs does not depend on how many there are.
//   - What comes from the bridge never reaches 127.0.0.0/8 of the host, though routes of it are allowed there.
//
// A Rules is not safe for concurrent use.
package natrules
