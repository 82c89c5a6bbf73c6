package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolateCommand makes a supervisor's child what enters the namespaces and becomes the task.
const isolateCommand = "isolate"

// isolate has the process started in new namespaces as this binary, which builds its world and becomes the task.
func isolate(dir string, spec *Spec, attr *os.ProcAttr) (path string, args []string, err error) {
	attr.Sys.Cloneflags = syscall.CLONE_NEWNS
	if !spec.Isolate.HostPID {
		attr.Sys.Cloneflags |= syscall.CLONE_NEWPID
	}
	if !spec.Isolate.HostIPC {
		attr.Sys.Cloneflags |= syscall.CLONE_NEWIPC
	}
	if n := spec.Network; n != nil && n.Hostname != "" {
		attr.Sys.Cloneflags |= syscall.CLONE_NEWUTS
	}
	attr.Dir = "/"
	self := OwnCommand()
	return self[0], append(self, isolateCommand, dir), nil
}

// isolated becomes the task. What fails is written to its standard error, which is its log.
func isolated(dir string) int {
	runtime.LockOSThread()
	err := enterWorld(dir)
	fmt.Fprintln(os.Stderr, "corbel: the task could not be isolated:", err)
	return 127
}

func enterWorld(dir string) error {
	spec := &Spec{}
	if err := read(filepath.Join(dir, specFile), spec); err != nil {
		return err
	}
	var who *syscall.Credential
	if spec.User != "" {
		var err error
		if who, err = credential(spec.User); err != nil {
			return err
		}
	}
	for _, join := range spec.Isolate.Joins {
		if err := os.WriteFile(join, []byte("0"), 0); err != nil {
			return fmt.Errorf("join the control group: %w", err)
		}
	}
	if n := spec.Network; n != nil && n.Hostname != "" {
		if err := unix.Sethostname([]byte(n.Hostname)); err != nil {
			return fmt.Errorf("hostname %q: %w", n.Hostname, err)
		}
	}
	if err := world(spec.Isolate, spec.Network); err != nil {
		return err
	}
	if err := limitRights(spec.Isolate.Caps, who); err != nil {
		return err
	}
	if err := os.Chdir(spec.Dir); err != nil {
		return err
	}
	command, err := find(spec.Command, spec.Dir, spec.Env)
	if err != nil {
		return err
	}
	err = syscall.Exec(command, append([]string{spec.Command}, spec.Args...), spec.Env)
	return fmt.Errorf("start %s: %w", command, err)
}

// world makes Root the file system of this process, with the mounts inside. Nothing of it is seen outside.
func world(i *Isolation, n *Network) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount(i.Root, i.Root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", i.Root, err)
	}
	root, err := os.OpenRoot(i.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range i.Mounts {
		if err := bind(root, &m); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Host, m.Inside, err)
		}
	}
	if err := devices(root); err != nil {
		return err
	}
	if err := at(root, "proc", true, func(target string) error {
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		return unix.Mount("proc", target, "proc", flags, "")
	}); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	var files []Mount
	if n != nil {
		for k, m := range n.Files { // by way of /dev, which nobody else has: the old root takes their paths with it
			by := fmt.Sprintf("/dev/.file%d", k)
			if err := bind(root, &Mount{Host: m.Host, Inside: by}); err != nil {
				return fmt.Errorf("mount %s: %w", m.Host, err)
			}
			files = append(files, Mount{Host: by, Inside: m.Inside})
		}
	}
	if err := os.Chdir(i.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root comes on top of the new one, and goes
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for _, m := range files { // a link leads to a place of the new root
		if err := cover(m.Host, m.Inside); err != nil {
			return err
		}
		if err := errors.Join(unix.Unmount(m.Host, unix.MNT_DETACH), os.Remove(m.Host)); err != nil {
			return err
		}
	}
	return nil
}

// at calls f with a path to a place inside root that no link leads out of; it makes the folder or file.
func at(root *os.Root, name string, dir bool, f func(target string) error) error {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if dir {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
	} else {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		made, err := root.OpenFile(name, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		_ = made.Close()
	}
	place, err := root.Open(name)
	if err != nil {
		return err
	}
	defer place.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d", place.Fd()))
}

// bind mounts a folder or file of the host. What the host does not have is left out, unless it is the job's.
func bind(root *os.Root, m *Mount) error {
	info, err := os.Stat(m.Host)
	if errors.Is(err, fs.ErrNotExist) && m.Optional {
		return nil
	}
	if err != nil {
		return err
	}
	return at(root, m.Inside, info.IsDir(), func(target string) error {
		if err := unix.Mount(m.Host, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		if !m.ReadOnly {
			return nil
		}
		// The descriptor leads below the new mount: it is opened again.
		return at(root, m.Inside, info.IsDir(), func(target string) error {
			return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, "")
		})
	})
}

// devices makes /dev with what every program expects, and nothing else.
func devices(root *os.Root) error {
	if err := at(root, "dev", true, func(target string) error {
		return unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID, "size=64k,mode=755")
	}); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bind(root, &Mount{Host: "/dev/" + name, Inside: "dev/" + name}); err != nil {
			return fmt.Errorf("mount /dev/%s: %w", name, err)
		}
	}
	for name, to := range map[string]string{"dev/fd": "/proc/self/fd", "dev/stdin": "/proc/self/fd/0",
		"dev/stdout": "/proc/self/fd/1", "dev/stderr": "/proc/self/fd/2"} {
		if err := root.Symlink(to, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return at(root, "dev/shm", true, func(target string) error {
		return unix.Mount("shm", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64m,mode=1777")
	})
}

// limitRights keeps the capabilities of a list, becomes the user, and gains nothing ever after.
func limitRights(keep []string, who *syscall.Credential) error {
	var mask [2]uint32
	for n := range uintptr(64) {
		name := capabilityName(int(n))
		if slices.Contains(keep, name) {
			mask[n/32] |= 1 << (n % 32)
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, n, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	if who != nil {
		groups := make([]int, len(who.Groups))
		for i, g := range who.Groups {
			groups[i] = int(g)
		}
		if err := syscall.Setgroups(groups); err != nil {
			return fmt.Errorf("set groups: %w", err)
		}
		if err := syscall.Setgid(int(who.Gid)); err != nil {
			return fmt.Errorf("set the group: %w", err)
		}
		if err := syscall.Setuid(int(who.Uid)); err != nil {
			return fmt.Errorf("set the user: %w", err)
		}
	}
	if os.Getuid() == 0 {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := [2]unix.CapUserData{{Effective: mask[0], Permitted: mask[0]}, {Effective: mask[1], Permitted: mask[1]}}
		if err := unix.Capset(&header, &data[0]); err != nil {
			return fmt.Errorf("set capabilities: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new rights: %w", err)
	}
	return nil
}

// capabilities are the kernel's, in its order.
var capabilities = []string{"chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid",
	"setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
	"sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
	"sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
	"mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
	"checkpoint_restore"}

func capabilityName(n int) string {
	if n < len(capabilities) {
		return capabilities[n]
	}
	return ""
}
