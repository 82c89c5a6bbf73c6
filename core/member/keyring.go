package member

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
	"github.com/hashicorp/memberlist"
)

// keyParallel bounds the members that are asked at the same time.
const keyParallel = 32

// keyTimeout bounds an operation over the pool whose context has no earlier deadline.
const keyTimeout = 10 * time.Second

var errPlain = errkind.New(errkind.Invalid, "gossip: keyring is empty (encryption not enabled)")

// keyring is memberlist's ring with a file that follows it.
type keyring struct {
	// mu makes a change of the ring and the writing of its file one step. It is held over an fsync.
	mu   sync.Mutex
	ring *memberlist.Keyring
	fs   vfs.FS
	path string
}

// openKeyring reads the file, or makes a ring of the configured key. Nil: plain gossip.
func openKeyring(cfg Config) (*keyring, error) {
	k := &keyring{fs: cfg.FS, path: cfg.KeyringFile}
	var keys [][]byte
	if k.path != "" {
		b, err := vfs.ReadDurable(k.fs, k.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errkind.E(errkind.Unavailable, "gossip: keyring", err)
		}
		if err == nil {
			if keys, err = parseKeyring(b); err != nil {
				return nil, errkind.E(errkind.Corrupt, "gossip: keyring "+k.path, err)
			}
		}
	}
	given, err := parseOptional(cfg.Encrypt)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "gossip: encrypt", err)
	}
	fresh := len(keys) == 0 && given != nil
	if fresh {
		keys = [][]byte{given}
	} else if given != nil && !slices.ContainsFunc(keys, func(key []byte) bool { return string(key) == string(given) }) {
		cfg.Log.Warn("the keyring file exists and lacks the configured gossip key, which is ignored", "file", k.path)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	if k.ring, err = memberlist.NewKeyring(keys, keys[0]); err != nil {
		return nil, errkind.E(errkind.Invalid, "gossip: keyring", err)
	}
	if fresh {
		return k, k.save()
	}
	return k, nil
}

func parseOptional(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	return ParseKey(text)
}

// ParseKey decodes a gossip key: base64 of 16, 24 or 32 bytes.
func ParseKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errkind.New(errkind.Invalid, "gossip key is not base64")
	}
	if err := memberlist.ValidateKey(key); err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "gossip key has %d bytes, must have 16, 24 or 32", len(key))
	}
	return key, nil
}

// parseKeyring reads a keyring file: a JSON list of keys, the primary first.
func parseKeyring(b []byte) ([][]byte, error) {
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil {
		// The error of a JSON decoder may quote its input, which is keys here.
		return nil, errors.New("not a JSON list of keys")
	}
	var keys [][]byte
	for i, text := range texts {
		key, err := ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// save writes the ring, primary first (memberlist keeps it so).
func (k *keyring) save() error {
	if k.path == "" {
		return nil
	}
	if err := k.fs.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return errkind.E(errkind.Unavailable, "gossip: keyring", err)
	}
	keys, _ := k.texts()
	b, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		return err
	}
	return errkind.E(errkind.Unavailable, "gossip: keyring", vfs.WriteFileAtomic(k.fs, k.path, append(b, '\n'), 0o600))
}

func (k *keyring) texts() (keys []string, primary string) {
	for _, key := range k.ring.GetKeys() {
		keys = append(keys, base64.StdEncoding.EncodeToString(key))
	}
	return keys, base64.StdEncoding.EncodeToString(k.ring.GetPrimaryKey())
}

// do carries out one operation here.
func (k *keyring) do(op keyOp, text string) error {
	if op == opList {
		return nil
	}
	key, err := ParseKey(text)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch op {
	case opInstall:
		err = k.ring.AddKey(key)
	case opUse:
		if err = k.ring.UseKey(key); err != nil {
			err = errkind.New(errkind.NotFound, "requested key is not in the keyring")
		}
	case opRemove:
		if err = k.ring.RemoveKey(key); err != nil {
			err = errkind.New(errkind.Conflict, "removing the primary key is not allowed")
		}
	}
	if err != nil {
		return err
	}
	return k.save()
}

// KeyAnswer sums up what the members of the pool said.
type KeyAnswer struct {
	NumNodes    int               // members asked
	NumResp     int               // of those, how many answered
	NumErr      int               // and how many could not do it
	Keys        map[string]int    // key -> members that hold it
	PrimaryKeys map[string]int    // key -> members that encrypt with it
	Messages    map[string]string // member -> what went wrong there
}

func (a *KeyAnswer) add(from string, r keyReply) {
	a.NumResp++
	for _, key := range r.keys {
		a.Keys[key]++
	}
	if r.primary != "" {
		a.PrimaryKeys[r.primary]++
	}
	if r.trouble != "" {
		a.NumErr++
		a.Messages[from] = r.trouble
	}
}

func (a *KeyAnswer) err() error {
	switch {
	case a.NumErr > 0:
		return errkind.Errorf(errkind.Unavailable, "%d/%d nodes reported failure", a.NumErr, a.NumNodes)
	case a.NumResp < a.NumNodes:
		return errkind.Errorf(errkind.Unavailable, "%d/%d nodes did not respond", a.NumNodes-a.NumResp, a.NumNodes)
	}
	return nil
}

// ListKeys asks every alive member for its keys. Like the operations below it
// returns what was answered also when some did not: then with an error of kind Unavailable.
func (p *Pool) ListKeys(ctx context.Context) (KeyAnswer, error) { return p.keysOver(ctx, opList, "") }

// InstallKey adds a key to the ring of every alive member.
func (p *Pool) InstallKey(ctx context.Context, key string) (KeyAnswer, error) {
	return p.keysOver(ctx, opInstall, key)
}

// UseKey makes every alive member encrypt with a key that was installed before.
func (p *Pool) UseKey(ctx context.Context, key string) (KeyAnswer, error) {
	return p.keysOver(ctx, opUse, key)
}

// RemoveKey takes a key that is not the primary one off every alive member's ring.
func (p *Pool) RemoveKey(ctx context.Context, key string) (KeyAnswer, error) {
	return p.keysOver(ctx, opRemove, key)
}

// LocalKeys returns this member's keys alone.
func (p *Pool) LocalKeys() (KeyAnswer, error) {
	if p.keys == nil {
		return KeyAnswer{}, errPlain
	}
	a := newKeyAnswer(1)
	a.add(p.cfg.Name, p.answerKey(keyRequest{op: opList}))
	return a, nil
}

func newKeyAnswer(nodes int) KeyAnswer {
	return KeyAnswer{NumNodes: nodes, Keys: map[string]int{}, PrimaryKeys: map[string]int{}, Messages: map[string]string{}}
}

// keysOver asks all alive members, itself last: so that this member can still
// reach the others with the key that they know.
func (p *Pool) keysOver(ctx context.Context, op keyOp, key string) (KeyAnswer, error) {
	if p.keys == nil {
		return KeyAnswer{}, errPlain
	}
	if op != opList {
		if _, err := ParseKey(key); err != nil {
			return KeyAnswer{}, err
		}
	}
	if err := p.up(ctx); err != nil {
		return KeyAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	var others []Member
	for _, m := range p.Members(ActCarryKeys) {
		if m.Name != p.cfg.Name && (m.Status == Alive || m.Status == Leaving) {
			others = append(others, m)
		}
	}
	q := keyRequest{op: op, key: key}
	answer := newKeyAnswer(len(others) + 1)
	p.carry(ctx, others, q, &answer)
	answer.add(p.cfg.Name, p.answerKey(q))
	return answer, answer.err()
}

// carry brings q to the members and adds up their answers. It waits for all: ctx has an end.
func (p *Pool) carry(ctx context.Context, to []Member, q keyRequest, answer *KeyAnswer) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, keyParallel)
	req := q.encode()
	for _, m := range to {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			reply, err := p.cfg.Carry(ctx, m, req)
			var a keyReply
			if err == nil {
				a, err = decodeKeyReply(reply)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				answer.NumErr++
				answer.Messages[m.Name] = errkind.Text(err)
				return
			}
			answer.add(m.Name, a)
		})
	}
	wg.Wait()
}

// answerKey does what a request asks of this member.
func (p *Pool) answerKey(q keyRequest) (a keyReply) {
	if p.keys == nil {
		return keyReply{trouble: errkind.Text(errPlain)}
	}
	if err := p.keys.do(q.op, q.key); err != nil {
		a.trouble = errkind.Text(err)
		p.cfg.Log.Warn("gossip key operation failed", "error", err)
	}
	a.keys, a.primary = p.keys.texts()
	return a
}

// AnswerKeys does what a server asked for through its Config.Carry, and tells the keys. It is a secret's handler: the
// caller has made sure that a server asks.
func (p *Pool) AnswerKeys(_ context.Context, req []byte) ([]byte, error) {
	q, err := decodeKeyRequest(req)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "gossip: keyring", err)
	}
	return p.answerKey(q).encode(), nil
}
