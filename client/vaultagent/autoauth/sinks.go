package autoauth

import (
	"context"
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
	for {
		select {
		case g = <-s.newest:
		case <-ctx.Done():
			return
		}
		if err := s.write(ctx, g); err != nil {
			wait := max(pause.Next(), time.Second)
			s.log.Error("auto_auth: a sink was not written", "error", err, "again_in", wait.Round(time.Millisecond))
			sleep(ctx, wait)
			select {
			case s.newest <- g:
			default: // there is a newer one
			}
			continue
		}
		pause.Reset()
		s.once.Do(func() { close(s.delivered) })
	}
}

// write writes a token to all sinks.
func (s *sinks) write(ctx context.Context, g grant) error {
	var failed []error
	for _, one := range s.list {
		text := g.token
		var err error
		if one.WrapTTL > 0 {
			text, err = s.wrap(ctx, g.token, seconds(one.WrapTTL))
		}
		if err == nil && one.DHPath != "" {
			text, err = sealed(&one, text)
		}
		if err == nil {
			err = writeFile(one.Path, text, one.Mode)
		}
		if err == nil {
			s.log.Info("auto_auth: wrote the token", "path", one.Path)
		} else {
			failed = append(failed, fmt.Errorf("%s: %w", one.Path, err))
		}
	}
	return errors.Join(failed...)
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
