package parts

import (
	"sync"

	"github.com/klauspost/compress/zstd"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// maxUnpacked bounds what a compressed request becomes: records of one request, or a piece of a state, are at most
// feedBytes and one record more.
const maxUnpacked = 64 << 20

// packers compress and decompress, for any goroutine; each call has one of few states, which are made when they are
// first used.
var packers = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	to, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constants
	}
	from, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		panic(err)
	}
	return to, from
})

func packed(b []byte) []byte {
	to, _ := packers()
	return to.EncodeAll(b, nil)
}

// unpacked is what packed was given.
func unpacked(r *pack.Reader) ([]byte, error) {
	text := r.Bytes()
	if r.Err() != nil {
		return nil, errkind.E(errkind.Invalid, MethodAnew, r.Err())
	}
	_, from := packers()
	b, err := from.DecodeAll(text, nil)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "usage: a part that is being made anew", err)
	}
	return b, nil
}
