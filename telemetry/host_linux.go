package telemetry

import "syscall"

// disk says how full the data folder's file system is.
func (h *hostSampler) disk() {
	var fs syscall.Statfs_t
	if h.path == "" || syscall.Statfs(h.path, &fs) != nil || fs.Blocks == 0 {
		return
	}
	block := float64(fs.Bsize)
	size, used := float64(fs.Blocks)*block, float64(fs.Blocks-fs.Bfree)*block
	set := func(name string, v float64) { h.r.Gauge("host.disk."+name, "path", h.path).Set(v) }
	set("size", size)
	set("used", used)
	set("available", float64(fs.Bavail)*block)
	set("used_percent", 100*used/size)
	if fs.Files > 0 {
		set("inodes_percent", 100*float64(fs.Files-fs.Ffree)/float64(fs.Files))
	}
}
