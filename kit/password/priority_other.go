//go:build !linux

package password

// giveWay lowers the priority of the calling thread, where threads have one.
func giveWay() {}
