package record

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sound is a record that loads, as the volume "bad".
const sound = `{"version":1,"kind":"volumes","id":"bad","data":{"name":"n","size":7}}`

func TestDamagedRecordsAreSetAside(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ content, says string }{
		"empty":                   {"", "empty"},
		"truncated":               {sound[:len(sound)-9], "not a JSON record"},
		"truncated in the number": {sound[:len(sound)-2], "not a JSON record"},
		"zeros":                   {strings.Repeat("\x00", len(sound)), "not a JSON record"},
		"of another program":      {"vol-1,1073741824\n", "not a JSON record"},
		"an array":                {"[]", "not a JSON record"},
		"null":                    {"null", "version 0"},
		"two records":             {sound + sound, "not a JSON record"},
		"rest of a longer one":    {sound + `"}}`, "not a JSON record"},
		"not UTF-8":               {strings.Replace(sound, `"n"`, "\"\xff\"", 1), "not UTF-8"},
		"of another id":           {strings.Replace(sound, `"bad"`, `"other"`, 1), `record of "volumes"/"other"`},
		"of another kind":         {strings.Replace(sound, `"volumes"`, `"snapshots"`, 1), `record of "snapshots"/"bad"`},
		"without version":         {strings.Replace(sound, `"version":1,`, "", 1), "version 0"},
		"of a negative version":   {strings.Replace(sound, `"version":1,`, `"version":-1,`, 1), "version -1"},
		"version is a string":     {strings.Replace(sound, `"version":1,`, `"version":"1",`, 1), "not a JSON record"},
		"without data":            {`{"version":1,"kind":"volumes","id":"bad"}`, "no data"},
		"data is null":            {`{"version":1,"kind":"volumes","id":"bad","data":null}`, "no data"},
		"data of another type":    {`{"version":1,"kind":"volumes","id":"bad","data":{"size":"large"}}`, "cannot unmarshal string"},
		"huge":                    {sound + strings.Repeat(" ", maxBytes), "more than a record holds"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := open(t, dir, Options{})
			for _, id := range []string{"a", "bad", "z"} {
				require.NoError(t, d.Put(t.Context(), "volumes", id, volume{Name: id}))
			}
			require.NoError(t, os.WriteFile(filepath.Join(d.Path("volumes", "bad"), "record.json"), []byte(c.content), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(d.Path("volumes", "bad"), "image"), []byte("bytes"), 0o600))

			var ids []string
			damaged, err := d.Load(t.Context(), "volumes", func(id string, data []byte) error {
				var v volume
				if err := json.Unmarshal(data, &v); err != nil {
					return errors.Join(err, ErrDamaged)
				}
				ids = append(ids, id)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, []string{"a", "z"}, ids, "the others load")
			require.Len(t, damaged, 1)
			found := damaged[0]
			require.ErrorIs(t, found.Err, ErrDamaged)
			require.ErrorContains(t, found.Err, c.says)
			require.Equal(t, filepath.Join(dir, "damaged", "volumes-bad-1"), found.MovedTo)
			require.Contains(t, found.String(), "record volumes/bad: ")
			require.Contains(t, found.String(), found.MovedTo)

			b, err := os.ReadFile(filepath.Join(found.MovedTo, "record.json"))
			require.NoError(t, err)
			require.Equal(t, c.content, string(b), "nothing of it is changed")
			require.FileExists(t, filepath.Join(found.MovedTo, "image"), "the bytes went with it")
			require.NoDirExists(t, d.Path("volumes", "bad"))
			require.Len(t, load(t, d, "volumes"), 2, "it is reported once")
		})
	}
}

func TestDamagedTwiceKeepsBoth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir, Options{Sync: true})
	for _, want := range []string{"volumes-bad-1", "volumes-bad-2"} {
		require.NoError(t, d.Put(t.Context(), "volumes", "bad", volume{}))
		require.NoError(t, os.Truncate(filepath.Join(d.Path("volumes", "bad"), "record.json"), 0))
		damaged, err := d.Load(t.Context(), "volumes", nil)
		require.NoError(t, err)
		require.Len(t, damaged, 1)
		require.Equal(t, filepath.Join(dir, "damaged", want), damaged[0].MovedTo)
	}
}

func TestRecordThatIsNoFile(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir(), Options{})
	require.NoError(t, os.MkdirAll(filepath.Join(d.Path("volumes", "bad"), "record.json"), 0o700))
	damaged, err := d.Load(t.Context(), "volumes", nil)
	require.NoError(t, err)
	require.Len(t, damaged, 1)
	require.ErrorContains(t, damaged[0].Err, "no regular file")
	require.NotEmpty(t, damaged[0].MovedTo)
}

func TestNewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir(), Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "bad", volume{}))
	name := filepath.Join(d.Path("volumes", "bad"), "record.json")
	content := strings.Replace(sound, `"version":1`, `"version":2,"new":true`, 1)
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	damaged, err := d.Load(t.Context(), "volumes", nil)
	require.NoError(t, err)
	require.Len(t, damaged, 1)
	require.ErrorIs(t, damaged[0].Err, ErrNewer)
	require.NotErrorIs(t, damaged[0].Err, ErrDamaged)
	require.Empty(t, damaged[0].MovedTo)
	require.Contains(t, damaged[0].String(), d.Path("volumes", "bad"))
	require.FileExists(t, name, "a newer csiemu can still read it")
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir(), Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{Name: "a"}))
	require.NoError(t, os.MkdirAll(d.Path("volumes", "orphan"), 0o700))
	image := filepath.Join(d.Path("volumes", "orphan"), "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))

	damaged, err := d.Load(t.Context(), "volumes", func(id string, _ []byte) error {
		require.Equal(t, "a", id)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, damaged, 1)
	require.ErrorIs(t, damaged[0].Err, ErrOrphan)
	require.Equal(t, d.Path("volumes", "orphan"), damaged[0].Path)
	require.NoFileExists(t, image)
	require.FileExists(t, filepath.Join(damaged[0].MovedTo, "image"), "no crash leaves that, so it is not removed")
	require.Len(t, load(t, d, "volumes"), 1)
}

func TestForeignNamesAreReportedAndKept(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir(), Options{})
	require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{}))
	for _, name := range []string{"notes.txt", ".hidden", "with space"} {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, "volumes", name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(d.dir, "volumes", "lost+found"), 0o700))
	var ids []string
	damaged, err := d.Load(t.Context(), "volumes", func(id string, _ []byte) error { ids = append(ids, id); return nil })
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, ids)
	require.Len(t, damaged, 4)
	for _, found := range damaged {
		require.ErrorIs(t, found.Err, ErrForeign)
		require.Empty(t, found.MovedTo)
		_, err := os.Lstat(found.Path)
		require.NoError(t, err)
	}
}
