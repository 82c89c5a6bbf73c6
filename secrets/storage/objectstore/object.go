package objectstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage/records"
)

// An object's content is "COB1", a CRC32C of what follows (4 bytes, little endian), and either 'D' and the
// body, or 'P', a number of 16 bytes in hex, and how many parts (4 bytes) the body is in. Parts are
// objects of their own, parts/KEY/NUMBER/I with the slash of KEY as a hyphen, written before what names them.
const (
	magic     = "COB1"
	headBytes = 9
)

func wrap(kind byte, body []byte) []byte {
	out := make([]byte, headBytes, headBytes+len(body))
	copy(out, magic)
	out[8] = kind
	out = append(out, body...)
	binary.LittleEndian.PutUint32(out[4:], records.Checksum(out[8:]))
	return out
}

func unwrap(key string, data []byte) (kind byte, body []byte, err error) {
	if len(data) < headBytes || string(data[:4]) != magic ||
		records.Checksum(data[8:]) != binary.LittleEndian.Uint32(data[4:]) {
		return 0, nil, errkind.Errorf(errkind.Corrupt, "the object %s is damaged, or not Corbel's", key)
	}
	return data[8], data[headBytes:], nil
}

// put creates an object of any size.
func (s *Store) put(ctx context.Context, key string, body []byte) error {
	limit := s.cfg.Bucket.Info().ValueBytes
	if limit == 0 || headBytes+len(body) <= limit {
		return s.cfg.Bucket.Create(ctx, key, wrap('D', body))
	}
	var number [16]byte
	_, _ = rand.Read(number[:])
	text := fmt.Sprintf("%x", number)
	n := uint32(0)
	for rest := body; len(rest) > 0; n++ {
		part := rest[:min(len(rest), limit-headBytes)]
		rest = rest[len(part):]
		err := s.cfg.Bucket.Create(ctx, partKey(key, text, n), wrap('D', part))
		if errkind.Is(err, errkind.Unknown) {
			err = errkind.E(errkind.Unavailable, "a part of a commit", err) // nothing names it yet
		}
		if err != nil {
			return err
		}
	}
	return s.cfg.Bucket.Create(ctx, key, wrap('P', binary.LittleEndian.AppendUint32([]byte(text), n)))
}

func partKey(key, number string, i uint32) string {
	return fmt.Sprintf("parts/%s/%s/%08x", strings.ReplaceAll(key, "/", "-"), number, i)
}

// get reads an object that put wrote.
func (s *Store) get(ctx context.Context, key string) ([]byte, error) {
	data, _, err := s.cfg.Bucket.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	kind, body, err := unwrap(key, data)
	if err != nil || kind == 'D' {
		return body, err
	}
	const numberBytes = 32
	if kind != 'P' || len(body) != numberBytes+4 {
		return nil, errkind.Errorf(errkind.Corrupt, "the object %s is of a newer Corbel", key)
	}
	var out bytes.Buffer
	for i := range binary.LittleEndian.Uint32(body[numberBytes:]) {
		name := partKey(key, string(body[:numberBytes]), i)
		data, _, err := s.cfg.Bucket.Get(ctx, name)
		if err != nil {
			return nil, err // NotFound: the object went meanwhile, and then its parts
		}
		_, part, err := unwrap(name, data)
		if err != nil {
			return nil, err
		}
		out.Write(part)
	}
	return out.Bytes(), nil
}

// checkpointTime bounds the writing of a checkpoint and the removal of what it covers.
const checkpointTime = 10 * time.Minute

// checkpoint writes the records beside the work. The queue calls it.
func (s *Store) checkpoint(image records.Image) {
	s.writing.Store(true)
	s.written = 0
	s.checkpoints.Go(func() {
		defer s.writing.Store(false)
		ctx, cancel := context.WithTimeout(s.ctx, checkpointTime)
		defer cancel()
		var b bytes.Buffer
		_, err := image.WriteTo(&b)
		if err == nil {
			err = s.put(ctx, checkpointKey(image.Sequence), b.Bytes())
		}
		if err == nil {
			err = s.sweep(ctx, image.Sequence)
		}
		if err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Warn("cannot write a checkpoint of the secrets, or remove what it covers; the next one will", "error", err)
		}
	})
}

// sweep removes what a checkpoint makes superfluous: objects first, then parts, so that an object that is there has
// all its parts.
func (s *Store) sweep(ctx context.Context, sequence uint64) error {
	for _, kind := range []struct {
		prefix string
		last   string
	}{
		{"journal/", journalKey(sequence)}, {"checkpoint/", checkpointKey(sequence - 1)},
		{"parts/journal-", "parts/" + strings.ReplaceAll(journalKey(sequence), "/", "-") + "0"},
		{"parts/checkpoint-", "parts/" + strings.ReplaceAll(checkpointKey(sequence-1), "/", "-") + "0"},
	} {
		keys, err := s.all(ctx, kind.prefix, "")
		if err != nil {
			return err
		}
		for _, key := range keys {
			if key > kind.last {
				break
			}
			if err := s.cfg.Bucket.Delete(ctx, key); err != nil {
				return err
			}
		}
	}
	return nil
}
