package tools

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"hash"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/system"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/task"
)

// Tools answers what helps operators and clients and is nobody's state: of this process, of the API, of browsers.
type Tools struct {
	Gate    *tables.Gate
	Records *sealed.Store
	Flying  *flight.List
	Now     func() time.Time
	Local   Local
	// Holds judges again whether whoever reads a stream may; its error is that the right has ended.
	Holds func(ctx context.Context, t *task.Task, protected ...string) error
	noted atomic.Pointer[string] // the version that is in the store's history
}

// Rows are the paths of sys/ that it answers.
func (o *Tools) Rows() []system.Row {
	return []system.Row{
		{Path: "tools/random", InNamespaces: true, Write: o.random},
		{Path: "tools/random/", InNamespaces: true, Write: o.random},
		{Path: "tools/hash", InNamespaces: true, Write: o.hash},
		{Path: "tools/hash/", InNamespaces: true, Write: o.hash},
		{Path: "internal/specs/openapi", InNamespaces: true, Read: o.openAPI, Write: o.openAPI},
		{Path: "replication/", Read: o.replication},
		{Path: "version-history", List: o.versionHistory},
		{Path: "config/cors", Read: o.readCORS, Write: o.writeCORS, Del: o.deleteCORS},
		{Path: "config/state/sanitized", Read: o.settings},
		{Path: "metrics", Read: o.metrics},
		{Path: "host-info", Read: o.hostInfo},
		{Path: "in-flight-req", Read: o.inFlightRequests},
		{Path: "monitor", Read: o.monitor},
		{Path: "loggers", Read: o.readLogger, Write: o.writeLogger, Del: o.resetLogger},
		{Path: "loggers/", Read: o.readLogger, Write: o.writeLogger, Del: o.resetLogger},
		{Path: "pprof", Read: o.profile},
		{Path: "pprof/", Read: o.profile},
	}
}

// maxRandomBytes bounds what tools/random gives at once.
const maxRandomBytes = 128 << 10

// random gives random bytes: the path may name a source, which is one here, and how many.
func (o *Tools) random(c *system.Call) (any, error) {
	n := c.F.Int("bytes", 32)
	for part := range strings.SplitSeq(strings.Trim(c.Name, "/"), "/") {
		switch part {
		case "", "platform", "seal", "all":
		default:
			var err error
			if n, err = strconv.Atoi(part); err != nil {
				return nil, errkind.Errorf(errkind.Invalid,
					"error parsing url-set byte count: %q is neither a number nor a source (platform, seal, all)", part)
			}
		}
	}
	format := c.F.String("format")
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	if n < 1 || n > maxRandomBytes {
		return nil, errkind.Errorf(errkind.Invalid, "field \"bytes\": must be from 1 to %d", maxRandomBytes)
	}
	drawn := make([]byte, n)
	_, _ = rand.Read(drawn)
	text, err := formatted(drawn, format, "base64")
	return map[string]any{"random_bytes": text}, err
}

func formatted(b []byte, format, def string) (string, error) {
	if format == "" {
		format = def
	}
	switch format {
	case "base64":
		return base64.StdEncoding.EncodeToString(b), nil
	case "hex":
		return hex.EncodeToString(b), nil
	}
	return "", errkind.Errorf(errkind.Invalid, "unsupported encoding format %q; must be \"hex\" or \"base64\"", format)
}

// hashes are the algorithms of tools/hash.
var hashes = map[string]func() hash.Hash{
	"sha2-224": sha256.New224, "sha2-256": sha256.New, "sha2-384": sha512.New384, "sha2-512": sha512.New,
	"sha3-224": func() hash.Hash { return sha3.New224() }, "sha3-256": func() hash.Hash { return sha3.New256() },
	"sha3-384": func() hash.Hash { return sha3.New384() }, "sha3-512": func() hash.Hash { return sha3.New512() },
}

func (o *Tools) hash(c *system.Call) (any, error) {
	name := strings.Trim(c.Name, "/")
	if name == "" {
		name = c.F.String("algorithm")
	}
	if name == "" {
		name = "sha2-256"
	}
	text, format := c.F.String("input"), c.F.String("format")
	if err := c.F.Err(); err != nil {
		return nil, err
	}
	algorithm := hashes[name]
	if algorithm == nil {
		return nil, errkind.Errorf(errkind.Invalid, "unsupported algorithm %q", name)
	}
	input, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "unable to decode input as base64: %w", err)
	}
	h := algorithm()
	h.Write(input)
	sum, err := formatted(h.Sum(nil), format, "hex")
	return map[string]any{"sum": sum}, err
}

// replication says that there is none, under the names of Vault's other editions.
func (o *Tools) replication(c *system.Call) (any, error) {
	off := map[string]any{"mode": "disabled"}
	switch c.Name {
	case "status":
		return map[string]any{"dr": off, "performance": off}, nil
	case "dr/status", "performance/status":
		return off, nil
	}
	return nil, errkind.New(errkind.NotFound, "unsupported path")
}

// versionPrefix is where the versions are that this store was used by, each with when it came first.
const versionPrefix = "core/versions/"

type versionRecord struct {
	At       time.Time `json:"timestamp_installed"`
	Built    string    `json:"build_date"`
	Previous string    `json:"previous_version"`
}

// NoteVersion writes down that this version uses the store, when it does so for the first time.
func (o *Tools) NoteVersion(ctx context.Context) (int, error) {
	name := o.Local.Version
	if name == "" || o.Records.Sealed() || o.isNoted(name) {
		return 0, nil
	}
	records, err := o.Records.Scan(ctx, versionPrefix, storage.After(versionPrefix), 0)
	if err != nil {
		return 0, err
	}
	next, newest := versionRecord{At: o.Now().UTC(), Built: version.Of().Date}, time.Time{}
	for _, r := range records {
		var v versionRecord
		if json.Unmarshal(r.Value, &v) == nil && !v.At.Before(newest) {
			newest, next.Previous = v.At, r.Key[len(versionPrefix):]
		}
		if r.Key == versionPrefix+name {
			o.noted.Store(&name)
			return 0, nil
		}
	}
	op, err := storage.PutJSON(versionPrefix+name, next)
	if err == nil {
		err = o.Records.Commit(ctx, []storage.Op{op})
	}
	if err == nil {
		o.noted.Store(&name)
	}
	return 1, err
}

func (o *Tools) isNoted(version string) bool {
	noted := o.noted.Load()
	return noted != nil && *noted == version
}

func (o *Tools) versionHistory(c *system.Call) (any, error) {
	records, err := o.Records.Scan(c, versionPrefix, storage.After(versionPrefix), 0)
	if err != nil {
		return nil, err
	}
	keys, info := []string{}, map[string]any{}
	for _, r := range records {
		var v versionRecord
		if err := sealed.ReadJSON(r.Key, r.Value, &v); err != nil {
			return nil, err
		}
		name := r.Key[len(versionPrefix):]
		keys = append(keys, name)
		info[name] = v
	}
	if len(keys) == 0 {
		return nil, errkind.New(errkind.NotFound, "")
	}
	return map[string]any{"keys": keys, "key_info": info}, nil
}

func (o *Tools) inFlightRequests(*system.Call) (any, error) { return o.Flying.Show(), nil }
