package password

import "golang.org/x/sys/unix"

// niceness of threads that hash: who wakes up beside one runs at once, and on a machine that others use up a hash has
// a third of a share.
const niceness = 5

// giveWay lowers the priority of the calling thread. Where it may not, the hash is made all the same.
func giveWay() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), niceness) }
