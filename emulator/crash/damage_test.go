//go:build linux

package crash_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestDamagedRecord damages the record of a volume in every way, starts the
// emulator, which serves the others, and puts the record back: the volume is
// there again, with its bytes.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, record string){
		"truncated": func(t *testing.T, record string) {
			require.NoError(t, os.Truncate(record, 40))
		},
		"empty": func(t *testing.T, record string) {
			require.NoError(t, os.Truncate(record, 0))
		},
		"something else": func(t *testing.T, record string) {
			require.NoError(t, os.WriteFile(record, []byte("[1, 2, 3]"), 0o600))
		},
		"zeros": func(t *testing.T, record string) {
			info, err := os.Stat(record)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(record, make([]byte, info.Size()), 0o600))
		},
		"a directory": func(t *testing.T, record string) {
			require.NoError(t, os.Remove(record))
			require.NoError(t, os.Mkdir(record, 0o700))
		},
		"another volume's": func(t *testing.T, record string) {
			others, err := filepath.Glob(filepath.Join(filepath.Dir(record), "..", "*", "record.json"))
			require.NoError(t, err)
			for _, other := range others {
				if other != record {
					b, err := os.ReadFile(other)
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(record, b, 0o600))
				}
			}
		},
		"missing": func(t *testing.T, record string) {
			require.NoError(t, os.Remove(record))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "loop", newCoverage())
			l := &life{t: t, r: r, name: "life", capability: mountCapability("ext4")}
			witness, v := l.place("-witness", l.capability), l.place("", l.capability)
			for _, w := range []*volume{witness, v} {
				w.create()
				w.up()
				w.write()
			}
			v.down()
			r.child.end(t)
			dir := filepath.Join(r.state, "volumes", v.id)
			record := filepath.Join(dir, "record.json")
			sound, err := os.ReadFile(record)
			require.NoError(t, err)
			damage(t, record)

			r.start(t)
			witness.requireData()
			witness.requireWritable()
			r.requireListed(t, witness.id)
			_, err = r.ControllerPublishVolume(t.Context(), v.attachRequest())
			require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
			aside := filepath.Join(r.state, "damaged", "volumes-"+v.id+"-1")
			require.FileExists(t, filepath.Join(aside, "image"))
			require.Contains(t, r.child.log.String(), aside)

			r.child.end(t)
			record = filepath.Join(aside, "record.json")
			require.NoError(t, os.RemoveAll(record))
			require.NoError(t, os.WriteFile(record, sound, 0o600))
			require.NoError(t, os.Rename(aside, dir))
			require.NoError(t, os.Remove(filepath.Dir(aside)))
			r.start(t)
			v.up()
			v.requireData()
			l.end()
			r.requireOnly(t, r.requireExplained(t), nil, nil)
			r.child.end(t)
		})
	}
}

// requireListed asserts which volumes are listed.
func (r *rig) requireListed(t *testing.T, ids ...string) {
	t.Helper()
	list, err := r.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	var listed []string
	for _, e := range list.GetEntries() {
		listed = append(listed, e.GetVolume().GetVolumeId())
	}
	require.ElementsMatch(t, ids, listed)
}
