//go:build linux

package fusefile_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/fusefile"
)

func TestCheckRefusesWhatMeansNothing(t *testing.T) {
	t.Parallel()
	require.NoError(t, fusefile.Behaviour{}.Check())
	for name, f := range map[string]fusefile.Fault{
		"nothing happens":              {Reads: true},
		"two things happen":            {Reads: true, Hang: true, Errno: unix.EIO},
		"no requests":                  {Errno: unix.EIO},
		"corrupt writes":               {Writes: true, Corrupt: true},
		"torn reads":                   {Reads: true, Torn: true},
		"a negative offset":            {Reads: true, Hang: true, Offset: -1},
		"a negative length":            {Reads: true, Hang: true, Length: -1},
		"a negative part":              {Writes: true, Torn: true, Keep: -1},
		"a probability above 1":        {Reads: true, Hang: true, Probability: 1.1},
		"a probability that is a loss": {Reads: true, Hang: true, Probability: -0.1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, fusefile.Behaviour{Faults: []fusefile.Fault{f}}.Check(), backends.ErrInvalid)
		})
	}
	require.ErrorIs(t, fusefile.Behaviour{Shape: backends.Shaping{Latency: -1}}.Check(), backends.ErrInvalid)
}

// behave replaces the behaviour of a holder by faults.
func (r *rig) behave(faults ...fusefile.Fault) {
	r.t.Helper()
	require.NoError(r.t, fusefile.Behave(r.t.Context(), r.dir, fusefile.Behaviour{Faults: faults}))
}

func TestAFaultFailsRequestsByKindAndRange(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	f, block := r.open(), make([]byte, 4096)
	r.behave(
		fusefile.Fault{Reads: true, Errno: unix.ENODATA, Offset: 8192, Length: 4096},
		fusefile.Fault{Writes: true, Errno: unix.ENOSPC, Offset: mebibyte},
		fusefile.Fault{Flushes: true, Errno: unix.ETIMEDOUT},
	)
	for _, c := range []struct {
		offset      int64
		read, write error
	}{
		{0, nil, nil},
		{4096, nil, nil},
		{8192, unix.ENODATA, nil},
		{8191, unix.ENODATA, nil},
		{12288, nil, nil},
		{mebibyte - 1, nil, unix.ENOSPC},
		{2 * mebibyte, nil, unix.ENOSPC},
	} {
		_, err := f.ReadAt(block, c.offset)
		require.ErrorIs(t, err, c.read, "read at %d", c.offset)
		_, err = f.WriteAt(block, c.offset)
		require.ErrorIs(t, err, c.write, "write at %d", c.offset)
	}
	require.ErrorIs(t, f.Sync(), unix.ETIMEDOUT)
	punch := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 2*mebibyte, 4096)
	require.ErrorIs(t, punch, unix.ENOSPC, "a discard is a write")
	r.behave()
	require.NoError(t, f.Sync())
}

func TestAFaultWithAProbabilityIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	f, block := r.open(), make([]byte, 4096)
	failures := func() (pattern string) {
		r.behave(fusefile.Fault{Reads: true, Errno: unix.EIO, Probability: 0.3, Seed: 7})
		for range 200 {
			if _, err := f.ReadAt(block, 0); err != nil {
				pattern += "x"
			} else {
				pattern += "."
			}
		}
		return pattern
	}
	first := failures()
	require.Equal(t, first, failures())
	n := 0
	for _, c := range first {
		if c == 'x' {
			n++
		}
	}
	require.InDelta(t, 60, n, 25)
}

func TestAHangEndsWithTheBehaviour(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	f := r.open()
	hang := fusefile.Fault{Reads: true, Hang: true}
	r.behave(hang)
	done := make(chan error, 1)
	go func() {
		_, err := f.ReadAt(make([]byte, 4096), 0)
		done <- err
	}()
	_, err := f.WriteAt([]byte("goes on"), 0)
	require.NoError(t, err)
	r.behave(hang, fusefile.Fault{Writes: true, Errno: unix.EIO})
	requireNothing(t, done)
	r.behave(fusefile.Fault{Reads: true, Errno: unix.EREMOTEIO})
	require.ErrorIs(t, <-done, unix.EREMOTEIO, "it is looked at again")
}

// requireNothing wants nothing to come within a moment.
func requireNothing(t *testing.T, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		require.Fail(t, "it did not wait", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestDrainEndsAllWaiting(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]fusefile.Behaviour{
		"a hang":  {Faults: []fusefile.Fault{{Writes: true, Hang: true}}},
		"a delay": {Shape: backends.Shaping{Latency: time.Hour}},
		"a limit": {Shape: backends.Shaping{BytesPerSecond: 1}},
		"a pause": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, b)
			f := r.open()
			if name == "a limit" { // the first uses up what there is
				_, err := f.WriteAt([]byte("first"), 0)
				require.NoError(t, err)
			}
			if name == "a pause" {
				p, err := fusefile.PauseWrites(t.Context(), r.dir, time.Hour)
				require.NoError(t, err)
				defer func() { require.ErrorIs(t, p.Resume(), fusefile.ErrExpired) }()
			}
			done := make(chan error, 1)
			go func() {
				_, err := f.WriteAt([]byte("waits"), 0)
				done <- err
			}()
			requireNothing(t, done)
			require.NoError(t, fusefile.Drain(t.Context(), r.dir))
			require.NoError(t, <-done)
		})
	}
}

func TestCorruptionIsInWhatIsReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	f := r.open()
	zeros := make([]byte, 8192)
	_, err := f.WriteAt(zeros, 0)
	require.NoError(t, err)
	r.behave(fusefile.Fault{Reads: true, Corrupt: true, Offset: 4096, Length: 1024, Seed: 3})
	first, second := make([]byte, 8192), make([]byte, 8192)
	_, err = f.ReadAt(first, 0)
	require.NoError(t, err)
	bits := 0
	for i, b := range first {
		for ; b != 0; b &= b - 1 {
			bits++
			require.GreaterOrEqual(t, i, 4096)
			require.Less(t, i, 4096+1024)
		}
	}
	require.Equal(t, 2, bits, "one a sector")
	_, err = f.ReadAt(second[4096+512:], 4096+512) // another request
	require.NoError(t, err)
	require.Equal(t, first[4096+512:], second[4096+512:])
	_, err = r.image.ReadAt(second, 0)
	require.NoError(t, err)
	require.Equal(t, zeros, second)
}

func TestATornWriteSaysThatAllWasWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	f := r.open()
	r.behave(fusefile.Fault{Writes: true, Torn: true, Keep: 2})
	n, err := f.WriteAt([]byte("torn"), 0)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	got := make([]byte, 4)
	_, err = r.image.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "to\x00\x00", string(got))
}

func TestAPauseHoldsWritesAndDiscardsButNotReadsAndFlushes(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	f := r.open()
	p, err := fusefile.PauseWrites(t.Context(), r.dir, time.Hour)
	require.NoError(t, err)
	second, err := fusefile.PauseWrites(t.Context(), r.dir, time.Hour)
	require.NoError(t, err)
	write, discard := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := f.WriteAt([]byte("waits"), 0)
		write <- err
	}()
	other := r.open()
	go func() {
		discard <- unix.Fallocate(int(other.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, mebibyte, 4096)
	}()
	reader := r.open()
	_, err = reader.ReadAt(make([]byte, 4096), 0)
	require.NoError(t, err)
	require.NoError(t, p.Resume())
	requireNothing(t, write)
	requireNothing(t, discard)
	require.NoError(t, second.Resume())
	require.NoError(t, <-write)
	require.NoError(t, <-discard)
}

func TestAPauseEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rig){
		"after its limit":       func(*rig) {},
		"with the holder":       func(r *rig) { require.NoError(r.t, fusefile.Kill(r.t.Context(), r.dir)) },
		"when the holder stops": func(r *rig) { require.NoError(r.t, fusefile.Stop(r.t.Context(), r.dir, r.volume, false)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fusefile.Behaviour{})
			f := r.open()
			p, err := fusefile.PauseWrites(t.Context(), r.dir, 200*time.Millisecond)
			require.NoError(t, err)
			end(r)
			started := time.Now()
			_, err = f.WriteAt([]byte("waits"), 0)
			if name == "with the holder" {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
			}
			require.Less(t, time.Since(started), patience)
			require.ErrorIs(t, p.Resume(), fusefile.ErrExpired)
			_ = f.Close() // which a dead holder cannot answer
		})
	}
}

func TestPauseIsGivenUpWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, fusefile.Behaviour{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := fusefile.PauseWrites(ctx, r.dir, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
	_, err = r.open().WriteAt([]byte("goes on"), 0)
	require.NoError(t, err)
	_, err = os.Stat(fusefile.Path(r.dir))
	require.NoError(t, err)
}
