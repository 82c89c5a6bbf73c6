// Package archive reads and writes snapshot archives: a gzipped tar of meta.json,
// state.bin and SHA256SUMS, the envelope that Consul's tools save and verify
// (contract section 16). What is in state.bin is the caller's business.
//
// Invariants: Read reports success only after the sums of both files were
// compared; nothing in an archive is ever used as a path; memory is bounded
// whatever the input says of itself.
package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// The files of an archive, in their order.
const (
	metaName  = "meta.json"
	stateName = "state.bin"
	sumsName  = "SHA256SUMS"
)

// maxMetaBytes and maxSumsBytes bound what is held in memory, maxPaddingBytes the work for nothing.
const (
	maxPaddingBytes = 1 << 20
	maxMetaBytes    = 1 << 20
	maxSumsBytes    = 64 << 10
)

// Server is a member of the configuration that a snapshot was taken under.
type Server struct {
	Suffrage int // 0 voter, 1 non-voter
	ID       string
	Address  string
}

// Configuration lists the members.
type Configuration struct{ Servers []Server }

// Meta says what a snapshot is of; its fields are those of Raft's own metadata.
type Meta struct {
	Version            int
	ID                 string
	Index, Term        uint64
	Peers              []byte
	Configuration      Configuration
	ConfigurationIndex uint64
	Size               int64
}

// Write writes an archive of meta and of meta.Size bytes of state.
func Write(w io.Writer, meta *Meta, state io.Reader, now time.Time) error {
	head, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	var sums bytes.Buffer
	add := func(name string, size int64, r io.Reader) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: now,
			Format: tar.FormatPAX}); err != nil {
			return err
		}
		sum := sha256.New()
		if _, err := io.Copy(t, io.TeeReader(r, sum)); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum.Sum(nil), name)
		return nil
	}
	if err := add(metaName, int64(len(head)), bytes.NewReader(head)); err != nil {
		return errkind.E(errkind.Of(err), "write archive", err)
	}
	if err := add(stateName, meta.Size, io.LimitReader(state, meta.Size)); err != nil {
		return errkind.E(errkind.Of(err), "write archive", err)
	}
	list := bytes.Clone(sums.Bytes())
	err = errors.Join(add(sumsName, int64(len(list)), bytes.NewReader(list)), t.Close(), z.Close())
	return errkind.E(errkind.Of(err), "write archive", err)
}

// reader collects what an archive holds until its sums can be compared.
type reader struct {
	meta  Meta
	seen  map[string]hash.Hash
	sums  []byte
	state io.Writer
	limit int64
}

// Read copies the archive's state.bin to state and returns its metadata. Until it
// has returned without an error the state is not to be believed. A state larger
// than limit is of kind TooLarge, all other damage of kind Corrupt.
func Read(in io.Reader, state io.Writer, limit int64) (*Meta, error) {
	z, err := gzip.NewReader(bufio.NewReader(in))
	if err != nil {
		return nil, damaged("not a gzip file: %v", err)
	}
	r := &reader{seen: map[string]hash.Hash{}, state: state, limit: limit}
	t := tar.NewReader(z)
	for {
		head, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, damaged("%v", err)
		}
		if err := r.file(head, t); err != nil {
			return nil, err
		}
	}
	// The gzip checksum stands at its end, after padding.
	if n, err := io.Copy(io.Discard, io.LimitReader(z, maxPaddingBytes)); err != nil {
		return nil, damaged("%v", err)
	} else if n == maxPaddingBytes {
		return nil, damaged("more than %d bytes follow the files", n)
	}
	return &r.meta, r.compare()
}

func damaged(format string, args ...any) error {
	return errkind.Errorf(errkind.Corrupt, "snapshot archive: "+format, args...)
}

func (r *reader) file(head *tar.Header, body io.Reader) error {
	if head.Typeflag != tar.TypeReg {
		return damaged("%q is not a plain file", head.Name)
	}
	if r.seen[head.Name] != nil || head.Name == sumsName && r.sums != nil {
		return damaged("%q is there twice", head.Name)
	}
	sum := sha256.New()
	body = io.TeeReader(body, sum)
	switch head.Name {
	case metaName:
		raw, err := bounded(head, body, maxMetaBytes)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &r.meta); err != nil {
			return damaged("meta.json: %v", err)
		}
	case stateName:
		if head.Size > r.limit {
			return errkind.Errorf(errkind.TooLarge, "snapshot archive: state.bin has %d bytes, at most %d are taken",
				head.Size, r.limit)
		}
		if n, err := io.Copy(r.state, body); err != nil {
			return errkind.E(errkind.Corrupt, "snapshot archive: state.bin", err)
		} else if n != head.Size {
			return damaged("state.bin ends after %d of %d bytes", n, head.Size)
		}
	case sumsName:
		raw, err := bounded(head, body, maxSumsBytes)
		r.sums = append([]byte{}, raw...)
		return err
	default:
		return damaged("unexpected file %q", head.Name)
	}
	r.seen[head.Name] = sum
	return nil
}

func bounded(head *tar.Header, body io.Reader, limit int64) ([]byte, error) {
	if head.Size > limit {
		return nil, damaged("%s has %d bytes, at most %d are expected", head.Name, head.Size, limit)
	}
	raw, err := io.ReadAll(io.LimitReader(body, limit))
	if err != nil {
		return nil, damaged("%s: %v", head.Name, err)
	}
	return raw, nil
}

// compare holds the sums against what was read: each file has one, and it is right.
func (r *reader) compare() error {
	for _, name := range []string{metaName, stateName} {
		if r.seen[name] == nil {
			return damaged("%s is missing", name)
		}
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(r.sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return damaged("SHA256SUMS: a line is not a sum and a name")
		}
		listed[name] = sum
	}
	for name, sum := range r.seen {
		switch want := listed[name]; {
		case want == "":
			return damaged("SHA256SUMS does not name %s", name)
		case !strings.EqualFold(want, hex.EncodeToString(sum.Sum(nil))):
			return damaged("%s does not match its checksum", name)
		}
	}
	if len(listed) != len(r.seen) {
		return damaged("SHA256SUMS names files that are not there")
	}
	return nil
}
