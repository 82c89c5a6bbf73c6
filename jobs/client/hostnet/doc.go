// Package hostnet gives allocations networks of their own on this host: a namespace, a cable to a bridge, an address of
// the bridge's subnet, and ports of the host that lead inside. Networks of CNI plug-ins come the same way.
//
// What always holds:
//   - What is to be made is stored before anything of it is there, so that a later life of the agent finds all of it:
//     it keeps what allocations have, and takes away what nobody has any more (Keep).
//   - Join may be called again: what is there stays as it is, and tasks inside notice nothing.
//   - After Leave nothing is left: no namespace, no cable, no rule, no address, no file. When the last allocation has
//     left the bridge, the bridge and its rules go too, if this package made them.
//
// A namespace is a file in /run/netns with the allocation's id as its name, where `ip netns exec` finds it. It outlives
// the agent. All methods may be called by any goroutine; those that change the bridge come one after the other.
package hostnet
