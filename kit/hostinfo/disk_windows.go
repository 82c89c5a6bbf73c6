package hostinfo

import "golang.org/x/sys/windows"

// Disk tells how full the file system of path is; sizes in bytes. Windows counts no inodes.
func Disk(path string) (map[string]any, error) {
	s, err := SpaceOf(path)
	if err != nil {
		return nil, err
	}
	used := s.Total - s.Free
	return map[string]any{"path": path, "total": s.Total, "free": s.Free, "used": used,
		"usedPercent": percent(used, s.Total)}, nil
}

// SpaceOf tells how much room the volume of path has for this user.
func SpaceOf(path string) (s Space, err error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return s, err
	}
	var free uint64
	err = windows.GetDiskFreeSpaceEx(name, &s.Free, &s.Total, &free)
	return s, err
}
