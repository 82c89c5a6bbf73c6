package records

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"corbel.dev/corbel/kit/pack"
)

// part is a frame of records on its way to blocks.
type part struct {
	content     []byte
	offset      int64
	done        chan struct{} // closed when what follows is set
	blocks      []block
	first, last string
	count       int
	bytes       int
	err         error
}

// records reads the frames of records. One goroutine reads and checks them, one for each processor makes blocks, and
// here they come together in their order: a start waits for this.
func (f *frameReader) records(count uint64) (Set, error) {
	workers := runtime.GOMAXPROCS(0)
	work, inOrder, stop := make(chan *part, workers), make(chan *part, 4*workers), make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(stop)
	group.Go(func() { f.split(work, inOrder, stop) })
	for range workers {
		group.Go(func() {
			for p := range work {
				p.pack()
			}
		})
	}
	set := New()
	edit := set.blocks.Edit()
	last := ""
	for p := range inOrder {
		<-p.done
		if p.err == nil && p.count > 0 && p.first <= last {
			p.err = fmt.Errorf("key %q stands after %q", p.first, last)
		}
		if p.err != nil {
			return Set{}, misplaced{p.err, p.offset}
		}
		for _, b := range p.blocks {
			edit.Load(b)
		}
		set.count, set.bytes = set.count+p.count, set.bytes+p.bytes
		last = max(last, p.last)
	}
	set.blocks = edit.Done()
	if uint64(set.Len()) != count {
		return Set{}, fmt.Errorf("has %d records, its head says %d", set.Len(), count)
	}
	return set, nil
}

// misplaced is an error of a frame that was read some time ago.
type misplaced struct {
	error
	offset int64
}

// split reads frames up to the empty one, the first that is damaged, or stop.
func (f *frameReader) split(work, inOrder chan<- *part, stop <-chan struct{}) {
	defer close(work)
	defer close(inOrder)
	for {
		content, err := f.frame()
		if err == nil && len(content) == 0 {
			return
		}
		p := &part{content: content, offset: f.offset, done: make(chan struct{}), err: err}
		if err != nil {
			close(p.done)
		}
		select {
		case inOrder <- p:
		case <-stop:
			return
		}
		if err != nil {
			return
		}
		select {
		case work <- p:
		case <-stop:
			close(p.done)
			return
		}
	}
}

// pack makes the blocks.
func (p *part) pack() {
	defer close(p.done)
	var packed packer
	for r := pack.Read(p.content); r.More(); {
		key, value := alias(r.Bytes()), alias(r.Bytes())
		switch {
		case r.Err() != nil:
			p.err = r.Err()
		case len(key) > maxKeyBytes:
			p.err = fmt.Errorf("a key of %d bytes, more than %d", len(key), maxKeyBytes)
		case key <= p.last:
			p.err = fmt.Errorf("key %q stands after %q", key, p.last)
		}
		if p.err != nil {
			return
		}
		if p.count == 0 {
			p.first = key
		}
		if n := len(packed.buf); n > 0 && n+longerBytes(key, value)-common(packed.first, key) > blockBytes {
			p.blocks = append(p.blocks, packed.take())
		}
		packed.add(key, value)
		p.count, p.bytes = p.count+1, p.bytes+len(key)+len(value)
		p.last = key
	}
	if len(packed.buf) > 0 {
		p.blocks = append(p.blocks, packed.take())
	}
}

// alias is a text that is good as long as nobody changes b.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
