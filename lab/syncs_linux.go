package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/kit/spawn"
)

// syncs hold the calls of a foreign program, and of all that it starts, with which it makes files durable: the kernel
// stops each and asks (seccomp's user notifications, Linux 5.5). It needs no rights, no device and no mount, and what
// the program writes is on the real disk. Nothing is held until Delay.
type syncs struct {
	delay atomic.Int64 // of each call, in nanoseconds
	held  sync.WaitGroup
	end   context.CancelFunc
	fd    int
}

// Of <linux/seccomp.h>: structures of 80 and 24 bytes, as every kernel since 5.0 has them.
const (
	notifRecv     = 0xc0502100
	notifSend     = 0xc0182101
	notifContinue = 1
	filterListen  = 1 << 3
	userNotif     = 0x7fc00000
	allow         = 0x7fff0000
)

// startSlowable starts a program whose syncs can be held; wait is done when it ended. The program ends with the
// thread that started it, which is kept for it: filters and the signal at a parent's death belong to threads.
func startSlowable(cmd *exec.Cmd) (s *syncs, wait <-chan error, err error) {
	s = &syncs{}
	done, started := make(chan error, 1), make(chan error, 1)
	go func() { // ends when the program ends
		runtime.LockOSThread() // and never unlocked: the thread keeps the filter, so it ends with this goroutine
		err := s.filter()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		if s.fd > 0 {
			_ = unix.Close(s.fd)
		}
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	s.held.Go(func() { s.serve(ctx) })
	return s, done, nil
}

// filter makes this thread, and what it starts, ask before each sync.
func (s *syncs) filter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	calls := []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE}
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number of the call
	for i, call := range calls {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call,
			Jt: uint8(len(calls) - i)})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: allow},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: userNotif})
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, filterListen,
		uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("syncs of another program cannot be held here: seccomp user notifications: %w", errno)
	}
	s.fd = int(fd)
	unix.CloseOnExec(s.fd)
	return nil
}

// serve lets each call go on after its time, until ctx ends or the last of the programs did.
func (s *syncs) serve(ctx context.Context) {
	for ctx.Err() == nil {
		ready := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, 200); n == 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			return // nobody has the filter any more
		}
		var ask [80]byte
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), notifRecv, uintptr(unsafe.Pointer(&ask))); errno != 0 {
			continue // its caller is gone
		}
		id := binary.NativeEndian.Uint64(ask[:8])
		s.held.Go(func() {
			for began := time.Now(); ctx.Err() == nil && time.Since(began) < time.Duration(s.delay.Load()); {
				_ = spawn.Sleep(ctx, 10*time.Millisecond) // in steps: it may be mended meanwhile
			}
			var answer [24]byte
			binary.NativeEndian.PutUint64(answer[:8], id)
			binary.NativeEndian.PutUint32(answer[20:], notifContinue)
			// a caller that is gone needs no answer
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), notifSend, uintptr(unsafe.Pointer(&answer)))
		})
	}
}

// Delay makes each sync take so much longer, also those that are under way.
func (s *syncs) Delay(d time.Duration) { s.delay.Store(int64(d)) }

// Close lets all calls go on. Call it when the program has ended.
func (s *syncs) Close() {
	s.end()
	s.held.Wait()
	_ = unix.Close(s.fd)
}
