package jobsagentplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/jobs/client/allocrunner"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// A proxy in a network of its own does not reach the agent's gRPC at the host's loopback: it has a socket in its folder
// of secrets, where the agent listens and hands what comes on.
const (
	meshSocket = "xds.sock"
	// meshTarget is the file, of the agent's own, that says where the socket leads after a restart.
	meshTarget = "xds.addr"
	// maxSocket is the longest path of a socket (sun_path), beyond which it is named from the task's folder.
	maxSocket = 107
	// meshConns bounds what a proxy may have open: Envoy has one.
	meshConns = 16
	// meshDial bounds the connection to the agent's own port.
	meshDial = 10 * time.Second
)

// throughSocket has a bootstrap ask at the socket at path, and returns where it asked before: tcp or unix, and address.
func throughSocket(text []byte, path string) (out []byte, network, address string, err error) {
	var b map[string]any
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, "", "", err
	}
	at := func(v any, keys ...string) any {
		for _, k := range keys {
			switch list := v.(type) {
			case map[string]any:
				v = list[k]
			case []any:
				n, err := strconv.Atoi(k)
				if err != nil || n >= len(list) {
					return nil
				}
				v = list[n]
			default:
				return nil
			}
		}
		return v
	}
	clusters, _ := at(b, "static_resources", "clusters").([]any)
	for _, c := range clusters {
		if at(c, "name") != "local_agent" {
			continue
		}
		endpoint, _ := at(c, "load_assignment", "endpoints", "0", "lb_endpoints", "0", "endpoint").(map[string]any)
		if sock, ok := at(endpoint, "address", "socket_address").(map[string]any); ok {
			port, _ := sock["port_value"].(float64)
			host, _ := sock["address"].(string)
			network, address = "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))
		} else if pipe, ok := at(endpoint, "address", "pipe", "path").(string); ok {
			network, address = "unix", pipe
		} else {
			break
		}
		endpoint["address"] = map[string]any{"pipe": map[string]any{"path": path}}
		if object, ok := c.(map[string]any); ok {
			object["type"] = "STATIC"
		}
		out, err = json.MarshalIndent(b, "", "  ")
		return out, network, address, err
	}
	return nil, "", "", errkind.New(errkind.Internal, "the configuration has no cluster local_agent with an address")
}

// socketOf is the path of a proxy's socket as it sees it.
func socketOf(w *allocrunner.Work) string {
	path := w.Env.Vars["NOMAD_SECRETS_DIR"] + "/" + meshSocket
	if len(path) > maxSocket {
		return "secrets/" + meshSocket // from the task's folder, where it starts
	}
	return path
}

// relay listens at a proxy's socket until the task is over, and hands connections on. It remembers where to.
func (s *envoyStep) relay(w *allocrunner.Work, network, address string) error {
	if err := os.MkdirAll(w.Dirs.Private, 0o700); err != nil {
		return err
	}
	err := vfs.WriteFileAtomic(vfs.OS{}, filepath.Join(w.Dirs.Private, meshTarget), []byte(network+" "+address), 0o600)
	if err != nil {
		return err
	}
	return s.listen(w, network, address)
}

func (s *envoyStep) listen(w *allocrunner.Work, network, address string) error {
	dir, err := os.Open(filepath.Join(w.Dirs.Task, "secrets"))
	if err != nil {
		return err
	}
	defer dir.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), meshSocket) // however long the folder's is
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(w.Life, "unix", path)
	if err != nil {
		return fmt.Errorf("socket of the proxy: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the descriptor in its name is another's by then
	// Envoy may be another user than the agent; nobody but the task gets to the folder.
	if err := os.Chmod(path, 0o666); err != nil {
		return errors.Join(err, l.Close())
	}
	w.Go(func() { serve(w.Life, l, network, address) })
	return nil
}

// serve hands connections on until ctx ends.
func serve(ctx context.Context, l net.Listener, network, address string) {
	var conns sync.WaitGroup
	defer conns.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	room := make(chan struct{}, meshConns)
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case room <- struct{}{}:
		default: // it has enough
			_ = in.Close()
			continue
		}
		conns.Go(func() {
			defer func() { <-room }()
			handOn(ctx, in, network, address)
		})
	}
}

func handOn(ctx context.Context, in net.Conn, network, address string) {
	defer in.Close()
	out, err := (&net.Dialer{Timeout: meshDial}).DialContext(ctx, network, address)
	if err != nil {
		return // Envoy tries again
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { _ = in.Close(); _ = out.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out)
		_ = in.Close()
	})
	_, _ = io.Copy(out, in)
	_ = out.Close()
	back.Wait()
}

// Resume implements allocrunner.Resumer: the socket of a proxy that outlived the agent has to be served again.
func (s *envoyStep) Resume(_ context.Context, w *allocrunner.Work) error {
	if !w.Apart || w.Dirs.Task == "" || !isProxy(w) {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(w.Dirs.Private, meshTarget))
	if err != nil {
		return err
	}
	network, address, _ := strings.Cut(string(text), " ")
	return s.listen(w, network, address)
}
