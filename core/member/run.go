package member

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"github.com/hashicorp/memberlist"
)

// reapInterval is how often those gone for long are forgotten.
const reapInterval = 15 * time.Second

// nameReclaim is how long a failed member's name is kept from another address, so
// that a restarted host with a new address gets its name back soon.
const nameReclaim = 30 * time.Second

// Run opens the network and takes part until ctx ends. Without a Leave before, the
// others see this member fail.
func (p *Pool) Run(ctx context.Context) error {
	defer close(p.stopped)
	conf, err := p.config()
	if err != nil {
		return err
	}
	list, err := memberlist.Create(conf)
	if err != nil {
		if conf.Transport != nil {
			conf.Transport.Shutdown()
		}
		return errkind.E(errkind.Unavailable, "gossip", err)
	}
	self := list.LocalNode()
	p.list, p.local, p.port = list, self.Addr.String(), int(self.Port)
	known := p.readSnapshot()
	close(p.ready)
	var wg sync.WaitGroup
	wg.Go(func() { p.refute(ctx) })
	wg.Go(func() { p.keepSnapshot(ctx) })
	wg.Go(func() { p.reconnect(ctx, known) })
	wg.Go(func() {
		every(ctx, reapInterval, func() {
			for _, name := range p.members.reap() {
				p.cfg.Log.Info("forgot a member that has been gone for too long", "member", name)
			}
		})
	})
	<-ctx.Done()
	wg.Wait()
	p.end.closing.Lock() // a departure that is being told may end
	defer p.end.closing.Unlock()
	p.end.closed = true
	return errkind.E(errkind.Unavailable, "gossip", list.Shutdown())
}

// every calls f each interval, jittered by a fifth, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	for pause(ctx, interval-interval/10+rand.N(interval/5+1)) {
		f()
	}
}

// pause waits; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// config is memberlist's own, with the transport opened.
func (p *Pool) config() (*memberlist.Config, error) {
	var conf *memberlist.Config
	switch p.cfg.Profile {
	case WAN:
		conf = memberlist.DefaultWANConfig()
	case Local:
		conf = memberlist.DefaultLocalConfig()
		// Its two retransmissions leave one of five members in the dark now and then.
		conf.RetransmitMult, conf.PushPullInterval = 4, 5*time.Second
	default:
		conf = memberlist.DefaultLANConfig()
	}
	host, port, err := splitHostPort(p.cfg.Bind, DefaultPort)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "gossip: bind", err)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	conf.Name, conf.BindAddr, conf.BindPort, conf.AdvertisePort = p.cfg.Name, host, port, port
	conf.UDPBufferSize = 1400
	conf.DeadNodeReclaimTime = nameReclaim
	conf.GossipVerifyIncoming, conf.GossipVerifyOutgoing = !p.cfg.PlainIncoming, !p.cfg.PlainOutgoing
	if p.keys != nil {
		conf.Keyring = p.keys.ring
	}
	d := delegate{p}
	conf.Delegate, conf.Events, conf.Alive, conf.Merge, conf.Conflict, conf.Ping = d, d, d, d, d, d
	conf.DelegateProtocolVersion, conf.DelegateProtocolMin, conf.DelegateProtocolMax = 1, 1, 1
	conf.Logger = log.New(logWriter{p.cfg.Log}, "", 0)
	conf.LogOutput = nil
	transport, port, err := openTransport(p.cfg, host, port, conf.Logger)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "gossip", err)
	}
	conf.Transport, conf.BindPort, conf.AdvertisePort = transport, port, port
	if p.cfg.Advertise != "" {
		conf.AdvertiseAddr, conf.AdvertisePort, err = splitHostPort(p.cfg.Advertise, port)
		if err != nil {
			transport.Shutdown()
			return nil, errkind.E(errkind.Invalid, "gossip: advertise", err)
		}
		if conf.AdvertisePort == 0 {
			conf.AdvertisePort = port
		}
	}
	return conf, nil
}

// logWriter turns memberlist's lines ("[WARN] memberlist: text") into slog records.
type logWriter struct{ log *slog.Logger }

// Write implements io.Writer.
func (w logWriter) Write(line []byte) (int, error) {
	n := len(line)
	line = bytes.TrimSpace(line)
	level := slog.LevelInfo
	if rest, ok := bytes.CutPrefix(line, []byte("[")); ok {
		if word, text, ok := bytes.Cut(rest, []byte("] ")); ok {
			line = text
			switch string(word) {
			case "DEBUG":
				level = slog.LevelDebug
			case "WARN":
				level = slog.LevelWarn
			case "ERR", "ERROR":
				level = slog.LevelError
			}
		}
	}
	if w.log.Enabled(context.Background(), level) {
		w.log.Log(context.Background(), level, string(line))
	}
	return n, nil
}

// Leave tells the pool that this member departs, so that it becomes left and not
// failed. The process goes on answering until Run ends. A Pool cannot come back:
// make a new one.
func (p *Pool) Leave(ctx context.Context) error {
	if err := p.up(ctx); err != nil {
		return err
	}
	epoch, again := p.self.leave()
	if again {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.LeaveTimeout)
	defer cancel()
	i := intent{name: p.cfg.Name, epoch: epoch}
	p.members.depart(i)
	if len(p.list.Members()) > 1 {
		// First the intent, often enough for all to have heard it; then the end.
		sent := make(chan struct{})
		p.spread(i, sent)
		select {
		case <-sent:
		case <-ctx.Done():
			p.cfg.Log.Warn("not all members heard of the departure in time")
		case <-p.stopped:
			return errStopped
		}
	}
	p.end.closing.Lock()
	defer p.end.closing.Unlock()
	if p.end.closed {
		return errStopped
	}
	// A time of its own: the message above may have used all there was.
	if err := p.list.Leave(p.cfg.LeaveTimeout); err != nil {
		return errkind.E(errkind.Unavailable, "gossip: leave", err)
	}
	return nil
}

// ForceLeave makes a failed member left, on every member of the pool; with prune it
// is forgotten at once. A member that is alive is not moved by it.
func (p *Pool) ForceLeave(name string, prune bool) error {
	epoch, ok := p.members.epochOf(name)
	if !ok {
		return errkind.Errorf(errkind.NotFound, "agent: No node found with name '%s'", name)
	}
	if name == p.cfg.Name {
		return nil // it is alive, and not moved either
	}
	i := intent{name: name, epoch: epoch, force: true, prune: prune}
	if p.members.depart(i) {
		p.spread(i, nil)
	}
	return nil
}

func hostPort(m Member) string { return net.JoinHostPort(m.Addr, strconv.Itoa(m.Port)) }
