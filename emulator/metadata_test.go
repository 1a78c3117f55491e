package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
)

const metadataService = csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE

// metadata is a client of the SnapshotMetadata service.
type metadata struct{ csi.SnapshotMetadataClient }

func (d *driver) metadata() metadata {
	d.t.Helper()
	conn, err := grpc.NewClient("unix://"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = conn.Close() })
	return metadata{csi.NewSnapshotMetadataClient(conn)}
}

// query asks for what is allocated in target, or for what changed from base if
// delta is set.
type query struct {
	delta        bool
	base, target string
	from         int64
	most         int32
}

// part is a message of either RPC.
type part interface {
	GetBlockMetadataType() csi.BlockMetadataType
	GetVolumeCapacityBytes() int64
	GetBlockMetadata() []*csi.BlockMetadata
}

// open starts a stream and returns what receives its messages.
func (m metadata) open(ctx context.Context, q query) (func() (part, error), error) {
	if q.delta {
		s, err := m.GetMetadataDelta(ctx, &csi.GetMetadataDeltaRequest{
			BaseSnapshotId: q.base, TargetSnapshotId: q.target, StartingOffset: q.from, MaxResults: q.most,
		})
		return func() (part, error) { return s.Recv() }, err
	}
	s, err := m.GetMetadataAllocated(ctx, &csi.GetMetadataAllocatedRequest{
		SnapshotId: q.target, StartingOffset: q.from, MaxResults: q.most,
	})
	return func() (part, error) { return s.Recv() }, err
}

// answer is all of a stream.
type answer struct {
	size     int64
	blocks   []backends.Extent
	messages int
}

// drain receives the rest of a stream and checks what every stream promises.
// Its error is nil when the stream said that this was all.
func (a *answer) drain(t *testing.T, q query, next func() (part, error)) error {
	t.Helper()
	for {
		p, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		a.take(t, q, p)
	}
}

func (a *answer) take(t *testing.T, q query, p part) {
	t.Helper()
	if a.messages++; a.messages == 1 {
		a.size = p.GetVolumeCapacityBytes()
	}
	require.Empty(t, a.objection(q, p))
}

// objection says what is wrong with a message, and keeps what it tells. Streams
// have thousands of them.
func (a *answer) objection(q query, p part) string {
	switch blocks := p.GetBlockMetadata(); {
	case p.GetBlockMetadataType() != csi.BlockMetadataType_VARIABLE_LENGTH:
		return "it is of type " + p.GetBlockMetadataType().String()
	case a.size <= 0 || p.GetVolumeCapacityBytes() != a.size:
		return fmt.Sprintf("the volume has %d bytes, and had %d", p.GetVolumeCapacityBytes(), a.size)
	case q.most > 0 && len(blocks) > int(q.most):
		return fmt.Sprintf("it has %d blocks", len(blocks))
	case proto.Size(p.(proto.Message)) > 32<<10:
		return "it is too large"
	}
	last := int64(0)
	if n := len(a.blocks); n > 0 {
		last = a.blocks[n-1].Offset + a.blocks[n-1].Length
	}
	for _, b := range p.GetBlockMetadata() {
		end := b.GetByteOffset() + b.GetSizeBytes()
		switch {
		case b.GetSizeBytes() <= 0:
			return fmt.Sprintf("%v is empty", b)
		case b.GetByteOffset() < last:
			return fmt.Sprintf("%v begins before %d, where the one before it ends", b, last)
		case end <= q.from || end > a.size:
			return fmt.Sprintf("%v does not end between %d and %d", b, q.from, a.size)
		}
		a.blocks, last = append(a.blocks, backends.Extent{Offset: b.GetByteOffset(), Length: b.GetSizeBytes()}), end
	}
	return ""
}

func (m metadata) all(t *testing.T, q query) answer {
	t.Helper()
	next, err := m.open(t.Context(), q)
	require.NoError(t, err)
	var a answer
	require.NoError(t, a.drain(t, q, next))
	require.Positive(t, a.messages, "the size is always told")
	return a
}

func (m metadata) fails(t *testing.T, q query) error {
	t.Helper()
	next, err := m.open(t.Context(), q)
	if err != nil {
		return err
	}
	return new(answer).drain(t, q, next)
}

// striped is a backend of which every second block of a snapshot holds data, and
// every fourth has changed, up to an end or a failure. It counts what it found.
type striped struct {
	*memory.Backend
	failAt int64
	found  atomic.Int64
}

const block = backends.Granularity

var errStore = errors.New("the store is broken")

func (s *striped) stripes(ctx context.Context, size, from, apart int64) iter.Seq2[backends.Extent, error] {
	return func(yield func(backends.Extent, error) bool) {
		for at := from / apart * apart; at < size; at += apart {
			err := ctx.Err()
			if s.failAt > 0 && at >= s.failAt {
				err = errStore
			}
			if err != nil {
				yield(backends.Extent{}, err)
				return
			}
			if at+block <= from {
				continue
			}
			s.found.Add(1)
			if !yield(backends.Extent{Offset: at, Length: block}, nil) {
				return
			}
		}
	}
}

func (s *striped) Allocated(ctx context.Context, snap backends.Snapshot, from int64) iter.Seq2[backends.Extent, error] {
	return s.stripes(ctx, snap.SizeBytes, from, 2*block)
}

func (s *striped) Changed(ctx context.Context, _, target backends.Snapshot, from int64) iter.Seq2[backends.Extent, error] {
	return s.stripes(ctx, target.SizeBytes, from, 4*block)
}

func metadataProfile() *emulator.Profile {
	p := emulator.DefaultProfile("memory")
	p.Plugin = append(p.Plugin, metadataService)
	return p
}

// stripes serves a striped volume with two snapshots.
func stripes(t *testing.T, size, failAt int64, edit ...func(*emulator.Config)) (d *driver, b *striped, base, target string) {
	t.Helper()
	b = &striped{Backend: memory.New(memory.Options{}), failAt: failAt}
	c := emulator.Config{Backend: b, Profile: metadataProfile(), Nodes: []emulator.Node{{Name: "node-1"}}}
	for _, f := range edit {
		f(&c)
	}
	d = start(t, c)
	v := d.create("striped", blockCapability(), size)
	return d, b, d.snapshot("base", v.id).GetSnapshotId(), d.snapshot("target", v.id).GetSnapshotId()
}

func TestMetadataAnswers(t *testing.T) {
	t.Parallel()
	const size = 16 * mib
	d, _, base, target := stripes(t, size, 0)
	other := d.snapshot("other", d.create("other", blockCapability(), size).id).GetSnapshotId()
	m := d.metadata()
	for name, c := range map[string]struct {
		query
		want codes.Code
	}{
		"allocated":                            {query{target: target}, codes.OK},
		"allocated, from the end":              {query{target: target, from: size}, codes.OK},
		"allocated, no id":                     {query{}, codes.InvalidArgument},
		"allocated, an unknown id":             {query{target: "snap-none"}, codes.NotFound},
		"allocated, from before the start":     {query{target: target, from: -1}, codes.OutOfRange},
		"allocated, from behind the end":       {query{target: target, from: size + 1}, codes.OutOfRange},
		"allocated, fewer than no results":     {query{target: target, most: -1}, codes.InvalidArgument},
		"delta":                                {query{delta: true, base: base, target: target}, codes.OK},
		"delta, from the end":                  {query{delta: true, base: base, target: target, from: size}, codes.OK},
		"delta, a snapshot with itself":        {query{delta: true, base: base, target: base}, codes.OK},
		"delta, no base":                       {query{delta: true, target: target}, codes.InvalidArgument},
		"delta, no target":                     {query{delta: true, base: base}, codes.InvalidArgument},
		"delta, an unknown base":               {query{delta: true, base: "snap-none", target: target}, codes.NotFound},
		"delta, an unknown target":             {query{delta: true, base: base, target: "snap-none"}, codes.NotFound},
		"delta, of two volumes":                {query{delta: true, base: base, target: other}, codes.InvalidArgument},
		"delta, a base that is later":          {query{delta: true, base: target, target: base}, codes.InvalidArgument},
		"delta, from before the start":         {query{delta: true, base: base, target: target, from: -1}, codes.OutOfRange},
		"delta, from behind the end":           {query{delta: true, base: base, target: target, from: size + 1}, codes.OutOfRange},
		"delta, fewer than no results":         {query{delta: true, base: base, target: target, most: -1}, codes.InvalidArgument},
		"delta, an id with a control in it":    {query{delta: true, base: "snap\n", target: target}, codes.InvalidArgument},
		"delta, unknown and from out of range": {query{delta: true, base: "snap-none", target: target, from: size + 1}, codes.NotFound},
	} {
		err := m.fails(t, c.query)
		wantCode(t, c.want, err)
		if c.want == codes.OK {
			require.Equal(t, int64(size), m.all(t, c.query).size, name)
		}
	}
}

func TestMetadataWhereItCannotBe(t *testing.T) {
	t.Parallel()
	both := func(t *testing.T, d *driver, want codes.Code) {
		t.Helper()
		v := d.create("volume", mountCapability(""), 16*mib)
		base, target := d.snapshot("base", v.id).GetSnapshotId(), d.snapshot("target", v.id).GetSnapshotId()
		m := d.metadata()
		wantCode(t, want, m.fails(t, query{target: target}))
		wantCode(t, want, m.fails(t, query{delta: true, base: base, target: target}))
		for _, id := range []string{base, target} {
			_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id})
			require.NoError(t, err)
		}
		v.delete()
	}
	t.Run("a backend without blocks does not offer it", func(t *testing.T) {
		t.Parallel()
		both(t, inMemory(t), codes.Unimplemented)
	})
	t.Run("a backend without blocks that is made to offer it", func(t *testing.T) {
		t.Parallel()
		both(t, inMemory(t, func(c *emulator.Config) { c.Profile = metadataProfile() }), codes.FailedPrecondition)
	})
	for _, b := range backendCases() {
		t.Run("switched off, on "+b.name, func(t *testing.T) {
			t.Parallel()
			state := shortDir(t)
			backend := b.open(t, state)
			p := emulator.DefaultProfile(b.name)
			require.True(t, p.Disable(metadataService.String()))
			both(t, start(t, emulator.Config{Backend: backend, Profile: p, StateDir: state}), codes.Unimplemented)
		})
		if b.name != "tmpfs" {
			continue
		}
		t.Run("a file system of tmpfs", func(t *testing.T) {
			t.Parallel()
			state := shortDir(t)
			both(t, start(t, emulator.Config{Backend: b.open(t, state), StateDir: state}), codes.FailedPrecondition)
		})
	}
}

func TestMetadataIsOfferedWhereItIs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"loop": true, "tmpfs": true, "memory": false} {
		p := emulator.DefaultProfile(name)
		if want {
			require.Contains(t, p.Plugin, metadataService, name)
		} else {
			require.NotContains(t, p.Plugin, metadataService, name)
		}
		require.True(t, p.Disable("CREATE_DELETE_SNAPSHOT"))
		require.NotContains(t, p.Plugin, metadataService, "there is none without snapshots")
	}
}

// TestMetadataInMessages asks for messages of every kind of size, from
// everywhere.
func TestMetadataInMessages(t *testing.T) {
	t.Parallel()
	const size = 16 * mib // 2048 ranges, of which 1024 have changed
	d, _, base, target := stripes(t, size, 0)
	m := d.metadata()
	for _, q := range []query{{target: target}, {delta: true, base: base, target: target}} {
		whole := m.all(t, q)
		require.Equal(t, int64(size), whole.size)
		require.Greater(t, whole.messages, 1)
		for most, messages := range map[int32]int{
			1: len(whole.blocks), 7: (len(whole.blocks) + 6) / 7, 1 << 30: whole.messages,
		} {
			q.most = most
			got := m.all(t, q)
			require.Equal(t, whole.blocks, got.blocks)
			require.Equal(t, messages, got.messages, "of %d", most)
		}
		for i, e := range whole.blocks[:9] {
			q.from = e.Offset + e.Length
			require.Equal(t, whole.blocks[i+1:], m.all(t, q).blocks)
			q.from--
			require.Equal(t, whole.blocks[i:], m.all(t, q).blocks)
		}
		q.from = size
		end := m.all(t, q)
		require.Empty(t, end.blocks)
		require.Equal(t, 1, end.messages)
	}
}

func TestMetadataThatFailsHalfWay(t *testing.T) {
	t.Parallel()
	d, _, base, target := stripes(t, 16*mib, 8*mib)
	m := d.metadata()
	for _, q := range []query{{target: target, most: 10}, {delta: true, base: base, target: target, most: 10}} {
		next, err := m.open(t.Context(), q)
		require.NoError(t, err)
		var a answer
		wantCode(t, codes.Internal, a.drain(t, q, next))
		require.NotEmpty(t, a.blocks, "what was found before is told")
	}
}

// ends is a log that hands on the codes with which streams of metadata end.
type ends struct {
	slog.Handler
	codes chan string
}

func (e ends) Enabled(context.Context, slog.Level) bool { return true }

func (e ends) Handle(_ context.Context, r slog.Record) error {
	var method, code string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "method":
			method = a.Value.String()
		case "code":
			code = a.Value.String()
		}
		return true
	})
	if code != "" && (method == "GetMetadataAllocated" || method == "GetMetadataDelta") {
		e.codes <- code
	}
	return nil
}

// TestMetadataThatNobodyWaitsFor cancels streams that have far more to tell than
// the connection takes.
func TestMetadataThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	log := ends{slog.DiscardHandler, make(chan string, 1)}
	d, b, base, target := stripes(t, 64*gib, 0, func(c *emulator.Config) { c.Log = slog.New(log) })
	m := d.metadata()
	for _, q := range []query{{target: target, most: 1}, {delta: true, base: base, target: target}} {
		ctx, cancel := context.WithCancel(t.Context())
		next, err := m.open(ctx, q)
		require.NoError(t, err)
		p, err := next()
		require.NoError(t, err)
		var a answer
		a.take(t, q, p)
		cancel()
		wantCode(t, codes.Canceled, a.drain(t, q, next))
		require.Equal(t, codes.Canceled.String(), <-log.codes, "the method has ended, and did not say that this was all")
		require.Less(t, b.found.Load(), int64(64*gib/(2*block)))
	}
	requireDeadline(t, m, query{target: target}, log)
}

func requireDeadline(t *testing.T, m metadata, q query, log ends) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience/100)
	defer cancel()
	next, err := m.open(ctx, q)
	require.NoError(t, err)
	_, err = next()
	if err == nil {
		<-ctx.Done() // a reader that is too slow
		err = new(answer).drain(t, q, next)
	}
	wantCode(t, codes.DeadlineExceeded, err)
	require.Contains(t, []string{codes.DeadlineExceeded.String(), codes.Canceled.String()}, <-log.codes)
}

// TestMetadataIsFoundWhileItIsSent stands in for the connection: when a message
// is sent, no more was asked of the store than what is in it.
func TestMetadataIsFoundWhileItIsSent(t *testing.T) {
	t.Parallel()
	d, b, base, target := stripes(t, 16*mib, 0)
	var all services
	require.NoError(t, d.emulator.Register("", &all))
	for _, request := range []proto.Message{
		&csi.GetMetadataAllocatedRequest{SnapshotId: target, MaxResults: 10},
		&csi.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target, MaxResults: 10},
	} {
		b.found.Store(0)
		sent := 0
		enough := errors.New("the caller has enough")
		err := all.stream(t, request, &fakeStream{ctx: t.Context(), request: request, send: func(m any) error {
			sent += len(m.(part).GetBlockMetadata())
			require.EqualValues(t, sent, b.found.Load())
			if sent >= 50 {
				return enough
			}
			return nil
		}})
		require.ErrorContains(t, err, enough.Error())
		require.EqualValues(t, 50, b.found.Load(), "nothing is looked for after an error")
	}
}

// services is a registrar that keeps what is registered.
type services struct {
	descs   []*grpc.ServiceDesc
	servers []any
}

func (s *services) RegisterService(d *grpc.ServiceDesc, server any) {
	s.descs, s.servers = append(s.descs, d), append(s.servers, server)
}

// stream calls the streaming method that takes a request.
func (s *services) stream(t *testing.T, request proto.Message, stream grpc.ServerStream) error {
	t.Helper()
	for i, d := range s.descs {
		for _, m := range d.Streams {
			if m.StreamName+"Request" == string(request.ProtoReflect().Descriptor().Name()) {
				return m.Handler(s.servers[i], stream)
			}
		}
	}
	require.Fail(t, "no service has the method")
	return nil
}

type fakeStream struct {
	grpc.ServerStream
	ctx     context.Context
	request proto.Message
	send    func(any) error
}

func (f *fakeStream) Context() context.Context { return f.ctx }
func (f *fakeStream) SendMsg(m any) error      { return f.send(m) }
func (f *fakeStream) RecvMsg(m any) error {
	proto.Merge(m.(proto.Message), f.request)
	return nil
}
