// Package vivaldi estimates the round trip between any two hosts from the few that were measured.
//
// Each host has a coordinate: a point in eight dimensions, a height above it for its access line, and
// an adjustment. The distance of two coordinates estimates the round trip between their hosts. A measurement pulls
// a coordinate a little to where it should be, by the weight of both sides' confidence (Dabek and others,
// "Vivaldi: a decentralized network coordinate system"; the adjustment is from Lee and others, "On suitability of
// Euclidean embedding for host-based network coordinate systems"; the slight pull to the origin from Ledlie and others,
// "Network coordinates in the wild").
//
// Invariants: every part of a coordinate is finite, the height at least HeightMin. What others send is checked
// (Valid) before it counts. A Coord is a value; a Client is safe for concurrent use and calls nobody.
package vivaldi

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Dimensions is how many a coordinate has.
const Dimensions = 8

// The constants are those that fleets of gossiping agents have run with for years; times are in seconds.
const (
	// ErrorMax is the error of a host that has measured nothing.
	ErrorMax = 1.5
	// HeightMin keeps hosts in one place apart.
	HeightMin = 10e-6

	errorGain        = 0.25
	moveGain         = 0.25
	adjustmentWindow = 20
	filterWindow     = 3
	gravityRho       = 150
	zero             = 1e-6
	rttMax           = 10 * time.Second
	// peersMax bounds the hosts whose last measurements are kept.
	peersMax = 4096
)

// Coord is where a host lies; the unit is seconds.
type Coord struct {
	Vec                       [Dimensions]float64
	Error, Adjustment, Height float64
}

// New is the coordinate of a host that has measured nothing.
func New() Coord { return Coord{Error: ErrorMax, Height: HeightMin} }

// Valid tells whether all parts are finite and none beyond reason.
func (c *Coord) Valid() bool {
	for _, v := range append(c.Vec[:], c.Error, c.Adjustment, c.Height) {
		if math.IsNaN(v) || math.Abs(v) > 1e6 {
			return false
		}
	}
	return c.Error >= 0 && c.Height >= 0
}

// Distance estimates the round trip.
func (c *Coord) Distance(o *Coord) time.Duration {
	raw := c.raw(o)
	if adjusted := raw + c.Adjustment + o.Adjustment; adjusted > 0 {
		raw = adjusted
	}
	return time.Duration(raw * float64(time.Second))
}

func (c *Coord) raw(o *Coord) float64 {
	_, length := c.direction(o)
	return length + c.Height + o.Height
}

// direction is the vector from o to c, and its length.
func (c *Coord) direction(o *Coord) (v [Dimensions]float64, length float64) {
	for i := range v {
		v[i] = c.Vec[i] - o.Vec[i]
		length += v[i] * v[i]
	}
	return v, math.Sqrt(length)
}

// push moves c away from o by force (towards it when negative).
func (c *Coord) push(force float64, o *Coord) {
	v, length := c.direction(o)
	if length <= zero { // in one place: any way will do
		length = 0
		for i := range v {
			v[i] = rand.Float64() - 0.5
		}
		_, size := (&Coord{Vec: v}).direction(&Coord{})
		for i := range v {
			v[i] /= max(size, zero)
		}
	} else {
		for i := range v {
			v[i] /= length
		}
		c.Height = max((c.Height+o.Height)*force/length+c.Height, HeightMin)
	}
	for i := range v {
		c.Vec[i] += v[i] * force
	}
}

const (
	encodingVersion = 1
	encodedBytes    = 1 + 8*(Dimensions+3)
)

var errEncoding = errors.New("vivaldi: not a coordinate")

// Append encodes c: version, then eleven numbers of 8 bytes, little endian.
func (c *Coord) Append(b []byte) []byte {
	b = append(b, encodingVersion)
	for _, v := range append(slices.Clone(c.Vec[:]), c.Error, c.Adjustment, c.Height) {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// Decode reads what Append wrote. A coordinate that is not valid is an error.
func Decode(b []byte) (c Coord, err error) {
	if len(b) != encodedBytes || b[0] != encodingVersion {
		return c, errEncoding
	}
	var parts [Dimensions + 3]float64
	for i := range parts {
		parts[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[1+8*i:]))
	}
	copy(c.Vec[:], parts[:])
	c.Error, c.Adjustment, c.Height = parts[Dimensions], parts[Dimensions+1], parts[Dimensions+2]
	if !c.Valid() {
		return Coord{}, errEncoding
	}
	return c, nil
}

// Client keeps this host's coordinate.
type Client struct {
	mu      sync.Mutex // guards all; held for arithmetic only
	own     Coord
	samples [adjustmentWindow]float64
	next    int
	last    map[string][]float64 // the last round trips by peer
	resets  int
}

// NewClient is a host that has measured nothing.
func NewClient() *Client { return &Client{own: New(), last: map[string][]float64{}} }

// Coord is this host's coordinate now.
func (c *Client) Coord() Coord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// Resets counts how often measurements led nowhere and the host began anew.
func (c *Client) Resets() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resets
}

// Forget drops what is kept of a peer.
func (c *Client) Forget(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, peer)
}

// Observe takes in a round trip to a peer and where that one says it lies; false for values
// that cannot be.
func (c *Client) Observe(peer string, other Coord, rtt time.Duration) bool {
	if !other.Valid() || rtt <= 0 || rtt > rttMax {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seconds := c.filter(peer, rtt.Seconds())
	c.pull(&other, seconds)
	c.adjust(&other, seconds)
	origin := Coord{Height: HeightMin}
	far := c.own.raw(&origin)
	c.own.push(-math.Pow(far/gravityRho, 2), &origin)
	if !c.own.Valid() {
		c.resets++
		c.own, c.samples = New(), [adjustmentWindow]float64{}
	}
	return true
}

// filter is the median of a peer's last round trips: one late answer is no distance.
func (c *Client) filter(peer string, rtt float64) float64 {
	if _, known := c.last[peer]; !known && len(c.last) >= peersMax {
		clear(c.last)
	}
	list := append(c.last[peer], rtt)
	if len(list) > filterWindow {
		list = list[1:]
	}
	c.last[peer] = list
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func (c *Client) pull(other *Coord, rtt float64) {
	rtt = max(rtt, zero)
	distance := c.own.raw(other)
	wrong := math.Abs(distance-rtt) / rtt
	weight := c.own.Error / max(c.own.Error+other.Error, zero)
	c.own.Error = min(errorGain*weight*wrong+c.own.Error*(1-errorGain*weight), ErrorMax)
	c.own.push(moveGain*weight*(rtt-distance), other)
}

func (c *Client) adjust(other *Coord, rtt float64) {
	c.samples[c.next] = rtt - c.own.raw(other)
	c.next = (c.next + 1) % adjustmentWindow
	sum := 0.0
	for _, s := range c.samples {
		sum += s
	}
	c.own.Adjustment = sum / (2 * adjustmentWindow)
}
