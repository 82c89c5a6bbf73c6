package fault

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/vfs"
)

// Injector is the armed side in a process. A nil *Injector is the normal case:
// all its methods then give the real thing.
type Injector struct {
	conn net.Conn
	disk *vfs.Faulty
	net  *network
	clk  *clock.Skewed
	sink *Sink
	// cards are what DoCards gave last; nil is the machine's own.
	cards atomic.Pointer[map[string]map[string]uint64]
	// repeat is what DoRepeat set, 0 for nothing.
	repeat atomic.Int32
}

// FromEnv returns the injector when a parent armed this process, else nil. It
// takes the names out of the environment, so that children are not armed by chance.
func FromEnv() (*Injector, error) {
	number, ok := os.LookupEnv(EnvFD)
	if !ok {
		return nil, nil
	}
	begin := os.Getenv(EnvBegin)
	_ = os.Unsetenv(EnvFD)
	_ = os.Unsetenv(EnvBegin)
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s: %q is no inherited descriptor", EnvFD, number)
	}
	file := os.NewFile(uintptr(fd), "fault control")
	if file == nil {
		return nil, fmt.Errorf("%s: %d is no descriptor", EnvFD, fd)
	}
	conn, err := net.FileConn(file) // a copy that is closed on exec
	_ = file.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: descriptor %d is no socket: %w", EnvFD, fd, err)
	}
	if _, ok := conn.(*net.UnixConn); !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: descriptor %d is no unix socket", EnvFD, fd)
	}
	in, err := newInjector(conn, begin)
	if err != nil {
		_ = conn.Close()
	}
	return in, err
}

func newInjector(conn net.Conn, begin string) (*Injector, error) {
	in := &Injector{conn: conn, disk: vfs.NewFaulty(vfs.OS{}), net: &network{}, clk: clock.NewSkewed(nil), sink: &Sink{}}
	if begin == "" {
		return in, nil
	}
	var commands []Command
	if err := json.Unmarshal([]byte(begin), &commands); err != nil {
		return nil, fmt.Errorf("%s: %w", EnvBegin, err)
	}
	for _, c := range commands {
		if c.Do == DoPower { // before there is any rule
			power, err := vfs.NewPower(c.Glob, c.Name)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", EnvBegin, c.Do, err)
			}
			in.disk = vfs.NewFaulty(power)
		}
	}
	for _, c := range commands {
		if c.Do == DoPower {
			continue
		}
		if err := in.apply(c); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", EnvBegin, c.Do, err)
		}
	}
	return in, nil
}

// Armed reports whether faults can be injected.
func (in *Injector) Armed() bool { return in != nil }

// FS is the disk that the process is to use.
func (in *Injector) FS() vfs.FS {
	if in == nil {
		return vfs.OS{}
	}
	return in.disk
}

// Clock is the clock that the process is to use.
func (in *Injector) Clock() clock.Clock {
	if in == nil {
		return clock.Real{}
	}
	return in.clk
}

// Net is the hook for core/wire's Config.Faults; nil when not armed.
func (in *Injector) Net() func(op, peer string) (hold time.Duration, err error) {
	if in == nil {
		return nil
	}
	return in.net.ask
}

// Sink is a metrics sink in line; nil when not armed.
func (in *Injector) Sink() *Sink {
	if in == nil {
		return nil
	}
	return in.sink
}

// Inline is Sink as the metrics of the libraries take it; nil when not armed.
func (in *Injector) Inline() interface {
	Name() string
	Write(line []byte)
} {
	if s := in.Sink(); s != nil {
		return s
	}
	return nil
}

// Cards returns the counters of network cards that the parent gave, nil when it gave none: the machine's own then
// count.
func (in *Injector) Cards() map[string]map[string]uint64 {
	if in == nil {
		return nil
	}
	if cards := in.cards.Load(); cards != nil {
		return *cards
	}
	return nil
}

// Repeat is how often each commit of the secrets plane is to be made.
func (in *Injector) Repeat() int {
	if in == nil {
		return 1
	}
	return max(1, int(in.repeat.Load()))
}

// maxRepeat bounds it.
const maxRepeat = 100

// Run serves the parent's commands until ctx ends or the parent goes away, then
// lifts all faults. On a nil Injector it only waits for ctx.
func (in *Injector) Run(ctx context.Context) error {
	if in == nil {
		<-ctx.Done()
		return nil
	}
	var once sync.Once
	hangUp := func() { once.Do(func() { _ = in.conn.Close() }) }
	stop := context.AfterFunc(ctx, hangUp)
	defer stop()
	in.serve()
	in.liftAll()
	hangUp()
	<-ctx.Done()
	return nil
}

// maxLineBytes bounds one command.
const maxLineBytes = 64 << 10

func (in *Injector) serve() {
	lines := bufio.NewScanner(in.conn)
	lines.Buffer(nil, maxLineBytes)
	out := json.NewEncoder(in.conn)
	for lines.Scan() {
		var c Command
		reply := Reply{}
		err := json.Unmarshal(lines.Bytes(), &c)
		if err == nil {
			err = in.apply(c)
		}
		if err != nil {
			reply.Error = err.Error()
		}
		reply.ID, reply.Status = c.ID, in.status()
		_ = in.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if out.Encode(reply) != nil {
			return
		}
	}
}

func (in *Injector) status() Status {
	offset, rate := in.clk.Status()
	return Status{PID: os.Getpid(), Disk: in.disk.Status(), Net: in.net.status(), Offset: offset, Rate: rate}
}

func (in *Injector) liftAll() {
	in.disk.LiftAll()
	in.net.liftAll()
	in.clk.Jump(0)
	in.clk.SetRate(1)
	in.sink.replace(nil)
	in.cards.Store(nil)
	in.repeat.Store(0)
}

func (in *Injector) apply(c Command) error {
	if c.Do == DoDisk || c.Do == DoNet || c.Do == DoSink {
		if c.Name == "" {
			return fmt.Errorf("a rule needs a name")
		}
		if len(in.disk.Status())+len(in.net.status()) >= MaxRules {
			return fmt.Errorf("%d rules are in force: lift some first", MaxRules)
		}
	}
	switch c.Do {
	case DoDisk:
		rule, err := c.diskRule()
		if err == nil {
			in.disk.Inject(rule)
		}
		return err
	case DoNet:
		rule, err := c.netRule()
		if err == nil {
			in.net.inject(rule)
		}
		return err
	case DoClock:
		in.clk.Jump(c.Offset)
		in.clk.SetRate(orOne(c.Rate))
	case DoSink:
		return in.sink.set(c.Name, c.Glob)
	case DoCards:
		if len(c.Cards) == 0 {
			return errors.New("no card is given")
		}
		in.cards.Store(&c.Cards)
	case DoRepeat:
		if c.Count < 1 || c.Count > maxRepeat {
			return fmt.Errorf("count: must be from 1 to %d", maxRepeat)
		}
		in.repeat.Store(int32(c.Count))
	case DoLift:
		onDisk, onNet, onSink := in.disk.Lift(c.Name), in.net.lift(c.Name), in.sink.lift(c.Name)
		if !onDisk && !onNet && !onSink {
			return fmt.Errorf("no rule is called %q", c.Name)
		}
	case DoClear:
		in.liftAll()
	case DoStatus:
	default:
		return fmt.Errorf("unknown command %q", c.Do)
	}
	return nil
}

func orOne(rate float64) float64 {
	if rate == 0 {
		return 1
	}
	return rate
}
