package autoauth

import (
	"context"
	"crypto/ecdh"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"corbel.dev/corbel/client/vaultagent/agentconfig"
	"corbel.dev/corbel/kit/backoff"
)

// sinks are the files that tokens are written to.
type sinks struct {
	list      []agentconfig.Sink
	connect   func(token, wrapTTL string) (server, error)
	log       *slog.Logger
	newest    chan grant // holds one: the newest, which displaces the one before
	delivered chan struct{}
	once      sync.Once
}

func newSinks(cfg *Config) *sinks {
	return &sinks{list: cfg.Auth.Sinks, connect: cfg.connect, log: cfg.Log, newest: make(chan grant, 1),
		delivered: make(chan struct{})}
}

// put hands a token over. It belongs to one goroutine.
func (s *sinks) put(g grant) {
	select {
	case <-s.newest:
	default:
	}
	s.newest <- g
}

// run writes until ctx ends.
func (s *sinks) run(ctx context.Context) {
	pause := backoff.Backoff{Min: 2 * time.Second, Max: time.Minute}
	var g grant
	var left []agentconfig.Sink // that g is not in yet
	for {
		if len(left) == 0 {
			select {
			case g = <-s.newest:
			case <-ctx.Done():
				return
			}
			left = s.list
		}
		var err error
		if left, err = s.write(ctx, g, left); err != nil {
			wait := max(pause.Next(), time.Second)
			s.log.Error("auto_auth: a sink was not written", "error", err, "again_in", wait.Round(time.Millisecond))
			sleep(ctx, wait)
			select {
			case g = <-s.newest:
				left = s.list
			case <-ctx.Done():
				return
			default:
			}
			continue
		}
		pause.Reset()
		s.once.Do(func() { close(s.delivered) })
	}
}

// write writes a token to sinks, and returns those that it is not in.
func (s *sinks) write(ctx context.Context, g grant, list []agentconfig.Sink) (left []agentconfig.Sink, err error) {
	var failed []error
	for _, one := range list {
		if err := s.writeOne(ctx, g, &one); err != nil {
			left = append(left, one)
			failed = append(failed, fmt.Errorf("%s: %w", one.Path, err))
			continue
		}
		s.log.Info("auto_auth: wrote the token", "path", one.Path)
	}
	return left, errors.Join(failed...)
}

// writeOne wraps the token, encrypts what comes of that, and writes it: the order that Vault documents. The reader's
// key is read before, so that no token is wrapped which nobody gets.
func (s *sinks) writeOne(ctx context.Context, g grant, one *agentconfig.Sink) (err error) {
	var reader *ecdh.PublicKey
	if one.DHPath != "" {
		if reader, err = readerOf(one); err != nil {
			return err
		}
	}
	text := g.token
	if one.WrapTTL > 0 {
		if text, err = s.wrap(ctx, g.token, seconds(one.WrapTTL)); err != nil {
			return err
		}
	}
	if reader != nil {
		if text, err = sealed(reader, one.AAD, text); err != nil {
			return err
		}
	}
	return writeFile(one.Path, text, one.Mode)
}

// wrap has the server keep the token for whoever comes with what is written.
func (s *sinks) wrap(ctx context.Context, token, ttl string) (string, error) {
	c, err := s.connect(token, ttl)
	if err != nil {
		return "", err
	}
	answer, err := c.Do(ctx, "PUT", "sys/wrapping/wrap", nil, map[string]string{"token": token})
	if err != nil {
		return "", fmt.Errorf("wrap the token: %w", err)
	}
	if answer.Wrap == nil {
		return "", errors.New("wrap the token: the server did not wrap it")
	}
	text, err := json.Marshal(answer.Wrap)
	return string(text), err
}

// writeFile replaces a file by one with the text and exactly these rights.
func writeFile(path, text string, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = f.Chmod(mode)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to report
	}
	return err
}
