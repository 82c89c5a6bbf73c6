package supervisor

import (
	"fmt"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// join calls start on a thread that is in the network of spec: a process that it starts is there too. What is isolated
// has files and a name of its own; for what is not, the thread gets a view of the host's files in which those of the
// network lie over them.
func join(spec *Spec, start func() error) error {
	if spec.Network == nil {
		return start()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it is not unlocked: the thread ends with the goroutine
		err := spec.Network.enter(spec.Isolate == nil)
		if err == nil {
			err = start()
		}
		result <- err
	}()
	return <-result
}

// enter takes the thread into the network, and with files shows it the network's files and name.
func (n *Network) enter(files bool) error {
	fd, err := unix.Open(n.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network of the allocation %s: %w", n.Path, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of the allocation %s: %w", n.Path, err)
	}
	if !files {
		return nil
	}
	if n.Hostname != "" {
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("a name of its own: %w", err)
		}
		if err := unix.Sethostname([]byte(n.Hostname)); err != nil {
			return fmt.Errorf("hostname %q: %w", n.Hostname, err)
		}
	}
	if len(n.Files) == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	for _, m := range n.Files {
		if err := cover(m.Host, m.Inside); err != nil {
			return err
		}
	}
	return nil
}

// cover lays a file over another, which may be a link.
func cover(file, over string) error {
	target, err := filepath.EvalSymlinks(over)
	if err != nil {
		return err
	}
	if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show %s as %s: %w", file, over, err)
	}
	return nil
}
