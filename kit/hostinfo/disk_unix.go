//go:build unix

package hostinfo

import "syscall"

// Disk tells how full the file system of path is; sizes in bytes.
func Disk(path string) (map[string]any, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return nil, err
	}
	size := uint64(st.Bsize)
	used := (st.Blocks - st.Bfree) * size
	inodesUsed := st.Files - min(st.Ffree, st.Files)
	return map[string]any{"path": path, "total": st.Blocks * size, "free": st.Bavail * size, "used": used,
		"usedPercent": percent(used, used+st.Bavail*size), "inodesTotal": st.Files, "inodesUsed": inodesUsed,
		"inodesFree": st.Ffree, "inodesUsedPercent": percent(inodesUsed, st.Files)}, nil
}

// SpaceOf tells how much room the file system of path has.
func SpaceOf(path string) (Space, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return Space{}, err
	}
	return Space{Free: uint64(st.Bavail) * uint64(st.Bsize), Total: uint64(st.Blocks) * uint64(st.Bsize)}, nil
}
