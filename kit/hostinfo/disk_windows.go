package hostinfo

import "golang.org/x/sys/windows"

// Disk tells how full the file system of path is; sizes in bytes. Windows counts no inodes.
func Disk(path string) (map[string]any, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	var available, size, free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &available, &size, &free); err != nil {
		return nil, err
	}
	used := size - free
	return map[string]any{"path": path, "total": size, "free": available, "used": used,
		"usedPercent": percent(used, used+available)}, nil
}
