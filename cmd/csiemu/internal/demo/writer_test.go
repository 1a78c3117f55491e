package demo

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// logOf writes the records first to last, as the writer would have.
func logOf(t *testing.T, first, last uint64) place {
	t.Helper()
	p := place{path: filepath.Join(t.TempDir(), "log"), offset: recordBytes, bytes: logBytes}
	f, err := os.Create(p.path)
	require.NoError(t, err)
	defer f.Close()
	for number := first; number <= last; number++ {
		_, err := f.WriteAt(record(number), p.offset+slot(number)*recordBytes)
		require.NoError(t, err)
	}
	return p
}

// put overwrites the slot of a record.
func put(t *testing.T, p place, at uint64, bytes []byte) {
	t.Helper()
	f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt(bytes, p.offset+slot(at)*recordBytes)
	require.NoError(t, err)
}

func TestWholeLogTellsItsNewestRecord(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]uint64{"of a few records": 7, "once around": slots, "three times around": 3*slots + 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newest, err := checkLog(logOf(t, 1, last), last)
			require.NoError(t, err)
			require.Equal(t, last, newest)
		})
	}
}

func TestCutThatIsNoPointInTimeIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*testing.T, place)
		want  string
	}{
		"a record is missing before a later one": {func(t *testing.T, p place) { put(t, p, 1500, record(1500-slots)) }, "record 1500 is missing"},
		"a record is half written":               {func(t *testing.T, p place) { put(t, p, 1500, record(9999)[:100]) }, "torn"},
		"a slot was never written":               {func(t *testing.T, p place) { put(t, p, 1100, make([]byte, recordBytes)) }, "record 1100 is missing"},
		"what was flushed is not there":          {func(t *testing.T, p place) { put(t, p, 2000, record(2000-slots)) }, "record 2000 was flushed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := logOf(t, 1, 2000)
			test.spoil(t, p)
			_, err := checkLog(p, 2000)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestWriterGoesOnFromALastRecord(t *testing.T) {
	t.Parallel()
	p := place{path: filepath.Join(t.TempDir(), "log"), bytes: logBytes}
	for last := uint64(0); last < 20; {
		w, err := startWriter(t.Context(), p, last)
		require.NoError(t, err)
		require.NoError(t, w.await(t.Context(), 5))
		require.NoError(t, w.end())
		written, _, err := w.state()
		require.NoError(t, err)
		require.GreaterOrEqual(t, written, last+5)
		newest, err := checkLog(p, written)
		require.NoError(t, err)
		require.Equal(t, written, newest)
		last = written
	}
}

func TestQuiescedWriterWritesNothing(t *testing.T) {
	t.Parallel()
	p := place{path: filepath.Join(t.TempDir(), "log"), bytes: logBytes}
	w, err := startWriter(t.Context(), p, 0)
	require.NoError(t, err)
	require.NoError(t, w.await(t.Context(), 1))
	resume := w.quiesce()
	before, err := checkLog(p, 1)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*pause)
	defer cancel()
	// One record may have been counted late; no further one is written.
	err = w.await(ctx, 2)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	after, err := checkLog(p, before)
	require.NoError(t, err)
	require.Equal(t, before, after)
	resume()
	require.NoError(t, w.await(t.Context(), 2))
	require.NoError(t, w.end())
}

func TestWriterReportsThatItCannotWrite(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full:", err)
	}
	w, err := startWriter(t.Context(), place{path: "/dev/full"}, 0)
	require.NoError(t, err)
	require.ErrorContains(t, w.await(t.Context(), 1), "no space left")
	require.ErrorContains(t, w.end(), "no space left")
}
