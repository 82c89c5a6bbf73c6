package vaultapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/secrets/cluster"
)

// Headers of reads on standbys: as of Vault's performance standbys, and one that states how old an answer may be.
const (
	indexHeader   = "X-Vault-Index"        // how far the answerer was; sent back: how far it must be at least
	forwardHeader = "X-Vault-Forward"      // "active-node": the active server is to answer
	lagHeader     = "X-Corbel-LastContact" // of a standby's answer: it is at most so many milliseconds old
)

// staleMost is how old a standby's copy may be for it to answer. One that hears of no leader for longer hands reads
// on again, so a token that was revoked opens nothing there for longer than that.
const staleMost = 5 * time.Second

func (a *API) standbyReads() bool { return a.cfg.Cluster != nil && a.cfg.Cluster.StandbyReads() }

// readHere answers a read from a standby's own copy, where that is wanted and possible; false: nothing was answered.
func (a *API) readHere(w http.ResponseWriter, r *http.Request, path string, via cluster.Via) bool {
	if !a.standbyReads() || (r.Method != http.MethodGet && r.Method != "LIST") || strings.HasPrefix(path, "sys/") ||
		via.Handed || r.Header.Get(forwardHeader) == "active-node" {
		return false
	}
	q, _, err := a.decode(r, path, via)
	if err != nil {
		return false
	}
	if most, wanted := a.wanted(r); wanted && !a.cfg.Cluster.Await(r.Context(), most) {
		return false
	}
	index, lag := a.cfg.Cluster.Fresh() // before the read: what is read is as new or newer
	if lag > staleMost {
		return false
	}
	reply, ok := a.cfg.Keeper.ReadHere(r.Context(), q)
	if !ok {
		return false
	}
	w.Header().Set(lagHeader, strconv.FormatInt((lag+time.Millisecond-1).Milliseconds(), 10))
	w.Header().Set(indexHeader, a.stateAt(index))
	answer(w, r, q, reply)
	return true
}

// stateAt is an index in the form of Vault's clients, which compare the numbers and check no more: "v1", cluster,
// index, and a second index and a mark that mean nothing here.
func (a *API) stateAt(index uint64) string {
	state := "v1:" + a.cfg.Keeper.Cluster().ID + ":" + strconv.FormatUint(index, 10) + ":0"
	sum := sha256.Sum256([]byte(state))
	return base64.StdEncoding.EncodeToString([]byte(state + ":" + hex.EncodeToString(sum[:])))
}

// wanted is the greatest index that a request asks for. One that cannot be read is never reached.
func (a *API) wanted(r *http.Request) (most uint64, ok bool) {
	for _, text := range r.Header.Values(indexHeader) {
		raw, err := base64.StdEncoding.DecodeString(text)
		parts := strings.Split(string(raw), ":")
		if err != nil || len(parts) != 5 || parts[0] != "v1" || parts[1] != a.cfg.Keeper.Cluster().ID {
			return math.MaxUint64, true
		}
		index, err := strconv.ParseUint(parts[2], 10, 64)
		if err != nil {
			return math.MaxUint64, true
		}
		most, ok = max(most, index), true
	}
	return most, ok
}

// told is the header by which a client's later reads on standbys see what this answer saw or did.
func (a *API) told() string {
	index, _ := a.cfg.Cluster.Fresh()
	return a.stateAt(index)
}
