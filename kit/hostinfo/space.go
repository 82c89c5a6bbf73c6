package hostinfo

// Space is how many bytes a process may still write to a file system, and how many fit on it.
type Space struct{ Free, Total uint64 }
