package jobstore

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobpack"
	"corbel.dev/corbel/jobs/state"
	"corbel.dev/corbel/kit/errkind"
)

// A snapshot is the magic, frames of a length, a kind and a record, a frame of kind end with how many there were, and
// a checksum over all of it. Jobs and what allocations share come before the allocations, which refer to them by
// number.
const snapshotMagic = "corbel jobs 1\n"

type frameKind uint8

const (
	frameEnd frameKind = iota
	frameHead
	frameNode
	frameJob
	frameGrant
	frameMetric
	frameAlloc
	frameEval
	frameDeploy
	frameDoc
	frameAllocDetail
	frameNodeDetail
)

// maxFrameBytes bounds a frame; a job is bounded at the door of the API.
const maxFrameBytes = 64 << 20

type headFrame struct {
	Index    uint64
	Config   jobs.Config
	Indexes  []uint64
	Restored uint64
}

type jobFrame struct {
	Job *jobs.Job
	// Kept is 2 for the job as it is now, 1 for a version, 0 for one that only allocations have.
	Kept uint8
}

type allocFrame struct {
	Placing
	Desired jobs.Desired
	Client  jobs.Client
}

// writer writes frames.
type writer struct {
	w     *bufio.Writer
	sum   uint32
	bytes int64
	count uint64
	err   error
	buf   []byte
}

func (w *writer) raw(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.sum = crc32.Update(w.sum, crc32.MakeTable(crc32.Castagnoli), b)
		w.bytes += int64(len(b))
	}
}

func frame[T any](w *writer, kind frameKind, v *T) {
	w.buf = jobpack.Append(append(w.buf[:0], 0, 0, 0, 0, byte(kind)), v)
	binary.LittleEndian.PutUint32(w.buf, uint32(len(w.buf)-5))
	w.raw(w.buf)
	w.count++
}

// WriteTo implements group.Snapshot.
func (v *View) WriteTo(to io.Writer) (int64, error) {
	w := &writer{w: bufio.NewWriterSize(to, 1<<16)}
	w.raw([]byte(snapshotMagic))
	frame(w, frameHead, &headFrame{v.State.Index(), v.State.Config(), v.indexes[:], v.restored})
	for u := range v.State.Uses() {
		frame(w, frameNode, u.Node)
	}
	numbers := v.writeJobs(w)
	v.writeAllocs(w, numbers)
	for e := range v.State.Evaluations() {
		frame(w, frameEval, e)
	}
	for d := range v.State.Deployments() {
		frame(w, frameDeploy, d)
	}
	for d := range v.docs.All() {
		frame(w, frameDoc, d)
	}
	for d := range v.allocs.All() {
		frame(w, frameAllocDetail, d)
	}
	for d := range v.nodes.All() {
		frame(w, frameNodeDetail, d)
	}
	count := w.count
	frame(w, frameEnd, &count)
	if w.err == nil {
		w.err = binary.Write(w.w, binary.LittleEndian, w.sum)
		w.bytes += 4
	}
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.bytes, w.err
}

// version names a job's version as allocations have it.
type version struct {
	jobs.JobKey
	number, created uint64
}

func versionOf(j *jobs.Job) version { return version{j.JobKey, j.Version, j.CreateIndex} }

func (v *View) writeJobs(w *writer) map[version]uint32 {
	numbers := map[version]uint32{}
	write := func(j *jobs.Job, kept uint8) {
		if _, ok := numbers[versionOf(j)]; ok {
			return
		}
		numbers[versionOf(j)] = uint32(len(numbers) + 1)
		frame(w, frameJob, &jobFrame{j, kept})
	}
	for j := range v.State.Jobs() {
		write(j, 2)
	}
	for j := range v.State.VersionsAll() {
		write(j, 1)
	}
	for a := range v.State.Allocations() {
		write(a.Job, 0)
	}
	return numbers
}

func (v *View) writeAllocs(w *writer, numbers map[version]uint32) {
	grants, metrics := map[*jobs.Grant]uint32{}, map[*jobs.Metric]uint32{}
	for a := range v.State.Allocations() {
		f := allocFrame{Placing: Placing{ID: a.ID, Node: a.NodeID, Index: a.Index, Group: a.Group, Rollout: a.Rollout,
			Lineage: a.Lineage, Eval: a.EvalID, Create: a.Stamp, Version: numbers[versionOf(a.Job)]},
			Desired: a.Desired, Client: a.Client}
		f.Grant = shared(w, frameGrant, grants, a.Grant)
		f.Metric = shared(w, frameMetric, metrics, a.Metric)
		frame(w, frameAlloc, &f)
	}
}

// shared writes what several allocations share once, before the first of them.
func shared[T any](w *writer, kind frameKind, numbers map[*T]uint32, v *T) uint32 {
	if v == nil {
		return 0
	}
	n, ok := numbers[v]
	if !ok {
		n = uint32(len(numbers) + 1)
		numbers[v] = n
		frame(w, kind, v)
	}
	return n
}

// reading is a snapshot that is read.
type reading struct {
	view    *View
	raise   *raise // nil: everything is as it was written
	edit    *state.Edit
	build   *builder
	jobs    []*jobs.Job
	grants  []*jobs.Grant
	metrics []*jobs.Metric
	count   uint64
	// The newest parameterized jobs that came so far, and the newest child of each.
	parents, siblings map[jobs.JobKey]*jobs.Job
}

var errDamaged = errkind.New(errkind.Corrupt, "the snapshot of the jobs plane is damaged")

// summed reads and sums up.
type summed struct {
	r   *bufio.Reader
	sum uint32
}

func (s *summed) full(b []byte) error {
	if _, err := io.ReadFull(s.r, b); err != nil {
		return errDamaged
	}
	s.sum = crc32.Update(s.sum, crc32.MakeTable(crc32.Castagnoli), b)
	return nil
}

// ReadView reads what WriteTo wrote.
func ReadView(from io.Reader) (*View, error) { return read(from, nil) }

func read(from io.Reader, up *raise) (*View, error) {
	s := &summed{r: bufio.NewReaderSize(from, 1<<16)}
	magic := make([]byte, len(snapshotMagic))
	if err := s.full(magic); err != nil || string(magic) != snapshotMagic {
		return nil, errDamaged
	}
	v := Empty()
	r := &reading{view: v, raise: up, parents: map[jobs.JobKey]*jobs.Job{}, siblings: map[jobs.JobKey]*jobs.Job{}}
	var buf []byte
	for done := false; !done; {
		var head [5]byte
		if err := s.full(head[:]); err != nil {
			return nil, err
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if n > maxFrameBytes {
			return nil, errDamaged
		}
		if int64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if err := s.full(buf); err != nil {
			return nil, err
		}
		var err error
		if done, err = r.frame(frameKind(head[4]), buf); err != nil {
			return nil, err
		}
	}
	var sum uint32
	if err := binary.Read(s.r, binary.LittleEndian, &sum); err != nil || sum != s.sum {
		return nil, errDamaged
	}
	if _, err := s.r.ReadByte(); err != io.EOF {
		return nil, errDamaged
	}
	b := r.build
	if up != nil && up.wrong {
		return nil, errDamaged
	}
	return &View{State: r.edit.Done(), indexes: b.marks, docs: b.docs.Done(), allocs: b.allocs.Done(),
		nodes: b.nodes.Done(), restored: r.view.restored}, nil
}

func (r *reading) frame(kind frameKind, b []byte) (done bool, err error) {
	if r.build == nil && kind != frameHead {
		return false, errDamaged
	}
	switch kind {
	case frameEnd:
		count, err := jobpack.Decode[uint64](b)
		if err != nil || *count != r.count {
			return false, errDamaged
		}
		return true, nil
	case frameHead:
		err = take(b, r.head)
	case frameNode:
		err = take(b, func(n *jobs.Node) error {
			r.raise.up(&n.ModifyIndex)
			r.edit.RestoreNode(n)
			return nil
		})
	case frameJob:
		err = take(b, r.job)
	case frameGrant:
		err = take(b, func(g *jobs.Grant) error { r.grants = append(r.grants, g); return nil })
	case frameMetric:
		err = take(b, func(m *jobs.Metric) error { r.metrics = append(r.metrics, m); return nil })
	case frameAlloc:
		err = take(b, r.alloc)
	case frameEval:
		err = take(b, func(e *jobs.Evaluation) error {
			r.raise.up(&e.ModifyIndex, &e.SnapshotIndex)
			r.edit.RestoreEvaluation(e)
			return nil
		})
	case frameDeploy:
		err = take(b, func(d *jobs.Deployment) error {
			r.raise.up(&d.ModifyIndex)
			r.edit.RestoreDeployment(d)
			return nil
		})
	case frameDoc:
		err = take(b, func(d *Document) error {
			r.raise.up(&d.ModifyIndex)
			r.build.docs.Set(d)
			return nil
		})
	case frameAllocDetail:
		err = take(b, func(d *AllocDetail) error { r.build.allocs.Set(d); return nil })
	case frameNodeDetail:
		err = take(b, func(d *NodeDetail) error { r.build.nodes.Set(d); return nil })
	default:
		return false, errkind.Errorf(errkind.Corrupt,
			"the snapshot of the jobs plane comes from a newer release (frame %d)", kind)
	}
	r.count++
	return false, err
}

func take[T any](b []byte, put func(*T) error) error {
	v, err := jobpack.Decode[T](b)
	if err != nil {
		return errDamaged
	}
	return put(v)
}

func (r *reading) head(h *headFrame) error {
	if err := r.raise.head(h); err != nil {
		return err
	}
	r.view.restored = h.Restored
	r.edit = r.view.State.Edit(h.Index)
	r.edit.SetConfig(h.Config)
	r.build = &builder{docs: r.view.docs.Edit(), allocs: r.view.allocs.Edit(), nodes: r.view.nodes.Edit()}
	copy(r.build.marks[:], h.Indexes)
	return nil
}

func (r *reading) job(f *jobFrame) error {
	if f.Job == nil {
		return errDamaged
	}
	r.raise.up(&f.Job.ModifyIndex, &f.Job.JobModifyIndex)
	j := r.adopt(f.Job)
	if f.Kept > 0 {
		r.edit.RestoreJob(j, f.Kept > 1)
	}
	r.jobs = append(r.jobs, j)
	return nil
}

// adopt has a dispatched job share what it can with its parent or a sibling, as it did before the snapshot. They stand
// before it, in the order of ids.
func (r *reading) adopt(child *jobs.Job) *jobs.Job {
	if !child.Origin.Dispatched {
		if child.Dispatch != nil {
			r.parents[child.JobKey] = child
		}
		return child
	}
	key := jobs.JobKey{Namespace: child.Namespace, ID: child.Origin.ParentID}
	own := child
	for _, from := range []*jobs.Job{r.siblings[key], r.parents[key]} {
		if child = adopt(own, from); child != own {
			break
		}
	}
	r.siblings[key] = child
	return child
}

func (r *reading) alloc(f *allocFrame) error {
	j := at(r.jobs, f.Version)
	grant := at(r.grants, f.Grant)
	if j == nil || grant == nil {
		return errDamaged
	}
	r.raise.up(&f.Create.ModifyIndex)
	name := f.Group
	if g := j.Group(name); g != nil {
		name = g.Name
	}
	r.edit.RestoreAllocation(&jobs.Allocation{ID: f.ID, NodeID: f.Node, EvalID: f.Eval, Job: j, Group: name,
		Index: f.Index, Grant: grant, Desired: f.Desired, Client: f.Client, Rollout: f.Rollout,
		Lineage: f.Lineage, Stamp: f.Create, Metric: at(r.metrics, f.Metric)})
	return nil
}
