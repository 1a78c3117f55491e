package record

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// helperVariable turns this test binary into the process that is killed. Its
// value is the store's directory.
const helperVariable = "CSIEMU_RECORD_HELPER"

// helper puts and deletes records until it is killed, and says before and after
// each call what it does.
func helper() int {
	d, err := Open(os.Getenv(helperVariable), Options{Sync: os.Getenv(helperVariable+"_SYNC") != ""})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Printf(format+"\n", args...); err != nil {
			os.Exit(1) // nobody reads any more
		}
	}
	say("open 0 0")
	for c := range 4 {
		go func() {
			for i := 1; ; i++ {
				id := fmt.Sprintf("w%d-%d", c, i%3)
				say("putting %s %d", id, i)
				// The length changes, so that a mixture of two would be seen.
				err := d.Put(context.Background(), "volumes", id, volume{Name: strings.Repeat("x", i*37%500), Size: int64(i)})
				if err != nil {
					say("error %v", err)
				}
				say("put %s %d", id, i)
				if i%5 == 0 {
					say("deleting %s %d", id, i)
					if err := d.Delete(context.Background(), "volumes", id); err != nil {
						say("error %v", err)
					}
					say("deleted %s %d", id, i)
				}
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
	return 0
}

// history is what a helper said about one record.
type history struct {
	done    int64 // size of the last record that was acknowledged, 0 if deleted
	pending int64 // size that was on its way, 0 for a deletion, -1 for nothing
}

// kill starts a helper on dir, kills it after so many lines and returns what it
// said.
func kill(t *testing.T, dir, sync string, lines int, said map[string]*history) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), helperVariable+"="+dir, helperVariable+"_SYNC="+sync)
	stdin, err := c.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	scan := bufio.NewScanner(out)
	for n := 0; scan.Scan(); n++ {
		if n == 0 {
			require.Equal(t, "open 0 0", scan.Text())
			_, err := Open(dir, Options{})
			require.ErrorIs(t, err, ErrLocked)
			require.ErrorContains(t, err, fmt.Sprintf("locked by process %d;", c.Process.Pid))
		}
		if n == lines {
			require.NoError(t, c.Process.Kill())
		}
		note(t, said, scan.Text())
	}
	require.NoError(t, scan.Err())
	var exit *exec.ExitError
	require.ErrorAs(t, c.Wait(), &exit)
}

func note(t *testing.T, said map[string]*history, line string) {
	t.Helper()
	require.NotContains(t, line, "error")
	var what, id string
	var size int64
	if n, _ := fmt.Sscanf(line, "%s %s %d", &what, &id, &size); n < 3 {
		return // cut by the kill: the call before it is pending
	}
	h := said[id]
	if h == nil {
		h = &history{pending: -1}
		said[id] = h
	}
	switch what {
	case "putting":
		h.pending = size
	case "put":
		h.done, h.pending = size, -1
	case "deleting":
		h.pending = 0
	case "deleted":
		h.done, h.pending = 0, -1
	}
}

// TestKilledProcess kills a process that writes and deletes, again and again on
// one directory: nothing that it acknowledged is lost, what it had begun is
// done or not done, and nothing else is left.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"", "sync"} {
		t.Run("sync="+sync, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			said := map[string]*history{}
			for round := range 12 {
				kill(t, dir, sync, 1+round*17, said)
				d := open(t, dir, Options{})
				delete(said, "0") // of the line that says open
				found := load(t, d, "volumes")
				for id, h := range said {
					v := found[id]
					if v.Size != h.done && (h.pending == -1 || v.Size != h.pending) {
						t.Errorf("record %s has %d after a kill; acknowledged was %d, under way %d", id, v.Size, h.done, h.pending)
					}
					require.Len(t, v.Name, int(v.Size*37%500), "no mixture of two")
					h.done, h.pending = v.Size, -1
				}
				checkTidy(t, d, found)
				require.NoError(t, d.Close())
			}
		})
	}
}

// checkTidy fails for every file that is no record of the store.
func checkTidy(t *testing.T, d *Dir, records map[string]volume) {
	t.Helper()
	if len(records) == 0 && len(names(t, d.dir)) == 1 {
		return // it was killed before the first record
	}
	require.Equal(t, []string{"lock", "volumes"}, names(t, d.dir))
	ids := names(t, filepath.Join(d.dir, "volumes"))
	require.Len(t, ids, len(records))
	for _, id := range ids {
		require.Contains(t, records, id)
		require.Equal(t, []string{"record.json"}, names(t, d.Path("volumes", id)))
	}
}

func TestLockEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kill(t, dir, "", 1, map[string]*history{})
	d, err := Open(dir, Options{})
	require.NoError(t, errors.Join(err, d.Close()))
}
