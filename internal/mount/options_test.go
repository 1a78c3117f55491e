//go:build linux

package mount_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestParseOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"nothing":                             {nil, ""},
		"empty entries":                       {[]string{"", ",", "ro,,noatime,"}, "ro,noatime"},
		"one an entry":                        {[]string{"ro", "noatime", "nouuid"}, "ro,noatime,nouuid"},
		"several in one entry":                {[]string{"ro,noatime,nouuid"}, "ro,noatime,nouuid"},
		"order of parameters kept":            {[]string{"data=journal", "commit=5", "nobarrier"}, "data=journal,commit=5,nobarrier"},
		"file system flags are parameters":    {[]string{"sync,dirsync,lazytime,mand,noload,async"}, "sync,dirsync,lazytime,mand,noload,async"},
		"a context without categories":        {[]string{`context="system_u:object_r:tmp_t:s0"`}, "context=system_u:object_r:tmp_t:s0"},
		"a context with commas":               {[]string{`context="u:r:t:s0:c1,c2",ro`}, `context="u:r:t:s0:c1,c2",ro`},
		"the kubelet's empty context":         {[]string{`context=""`}, "context="},
		"an empty value":                      {[]string{"usrjquota=,ro"}, "usrjquota=,ro"},
		"an equals sign in a value":           {[]string{"a=b=c"}, "a=b=c"},
		"spaces in a value":                   {[]string{"a=b c"}, "a=b c"},
		"a backslash in a value":              {[]string{`a=b\c`}, `a=b\c`},
		"a backslash at the end of a value":   {[]string{`a=b\`, "ro"}, `a="b\",ro`},
		"a value of the longest length":       {[]string{"a=" + strings.Repeat("v", 255)}, "a=" + strings.Repeat("v", 255)},
		"later wins: write":                   {[]string{"ro", "nosuid", "rw"}, "nosuid,rw"},
		"later wins: write, again":            {[]string{"rw,ro"}, "ro"},
		"later wins: exec":                    {[]string{"noexec,exec"}, "exec"},
		"later wins: atime":                   {[]string{"noatime,relatime,strictatime"}, "strictatime"},
		"other attributes stay":               {[]string{"ro,nosuid,nodev,noexec,noatime,nodiratime,nosymfollow"}, "ro,nosuid,nodev,noexec,noatime,nodiratime,nosymfollow"},
		"opposites are kept alone":            {[]string{"rw,suid,dev,exec,atime,diratime,symfollow"}, "rw,suid,dev,exec,atime,diratime,symfollow"},
		"atime takes noatime back":            {[]string{"noatime,atime"}, "atime"},
		"atime takes nothing else back":       {[]string{"strictatime,atime"}, "strictatime"},
		"norelatime leaves noatime":           {[]string{"noatime,norelatime"}, "noatime"},
		"nostrictatime takes strictatime":     {[]string{"strictatime,nostrictatime"}, "nostrictatime"},
		"noatime after atime":                 {[]string{"atime,noatime"}, "noatime"},
		"equal parameters once":               {[]string{"nouuid", "noquota", "nouuid"}, "noquota,nouuid"},
		"unequal values both":                 {[]string{"commit=5,commit=6"}, "commit=5,commit=6"},
		"a switch set again stays in force":   {[]string{"datacow,nodatacow,datacow"}, "nodatacow,datacow"},
		"notes for other programs":            {[]string{"defaults,auto,noauto,nouser,nousers,noowner,nogroup,nofail,_netdev,silent,loud"}, ""},
		"notes with values":                   {[]string{"x-systemd.device-timeout=5,X-fstrim.notrim,comment=mine,x-gvfs-show"}, ""},
		"defaults takes nothing back":         {[]string{"noexec,defaults"}, "noexec"},
		"a parameter that looks like a note":  {[]string{"nouser_xattr,user_id=0"}, "nouser_xattr,user_id=0"},
		"a name with a plus, a dot, a colon":  {[]string{"lowerdir+=/a,trusted.b=1,c:d"}, "lowerdir+=/a,trusted.b=1,c:d"},
		"a value in letters of any language":  {[]string{"source_label=данные"}, "source_label=данные"},
		"an attribute's name with more to it": {[]string{"ro_thing=1,noexecutable"}, "ro_thing=1,noexecutable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := mount.ParseOptions(c.flags)
			require.NoError(t, err)
			require.Equal(t, c.want, o.String())
			again, err := mount.ParseOptions([]string{o.String()})
			require.NoError(t, err)
			require.Equal(t, o.String(), again.String())
		})
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ flag, reason string }{
		"a NUL in a value":               {"context=secret\x00", "control character"},
		"a newline in a value":           {"context=secret\nro", "control character"},
		"a newline in quotes":            {"context=\"secret\n\"", "control character"},
		"a NUL in a name":                {"ro\x00", `no option has '\x00' in its name`},
		"a newline in a name":            {"ro\nrw", `no option has '\n' in its name`},
		"a space before a name":          {"ro, noatime", "no option has ' ' in its name"},
		"a flag of mount itself":         {"-o ro", "no option has ' ' in its name"},
		"a quoted name":                  {`"ro"`, `no option has '"' in its name`},
		"bytes that are not UTF-8":       {"a=secret\xff", "not valid UTF-8"},
		"a name that is not UTF-8":       {"a\xff", "in its name"},
		"a quote that does not end":      {`context="secret:c1,c2`, "quote does not end"},
		"text behind a quote":            {`context="secret"x`, "text behind its quote"},
		"a quote inside":                 {`context=secret"x"`, "not around the whole value"},
		"a quote at the end":             {`context=secret"`, "not around the whole value"},
		"an escaped comma":               {`lowerdir=secret\,b`, "put the value in double quotes"},
		"a value without a name":         {"=secret", "a value has no option in front"},
		"a value too long":               {"a=" + strings.Repeat("secret", 43), "258 bytes"},
		"a name too long":                {strings.Repeat("n", 256), "name of 256 bytes"},
		"a value for an attribute":       {"ro=secret", "takes no value"},
		"an empty value for one":         {"noexec=", "takes no value"},
		"bind":                           {"bind", `option "bind" asks mount(8)`},
		"rbind":                          {"rbind", "asks mount(8)"},
		"remount":                        {"remount,ro", "asks mount(8)"},
		"move":                           {"move", "asks mount(8)"},
		"a propagation type":             {"rshared", "asks mount(8)"},
		"a loop device":                  {"loop=secret", "asks mount(8)"},
		"who may mount":                  {"users", "asks mount(8)"},
		"another device":                 {"source=secret", "asks mount(8)"},
		"a directory to be made":         {"X-mount.mkdir=secret", "asks mount(8)"},
		"one of many":                    {"ro,noatime,bind,nouuid", `"bind"`},
		"a helper":                       {"helper=secret", "asks mount(8)"},
		"a control character past C0":    {"a=secret\u0085", "control character"},
		"what stands before other lists": {"nouuid,\x07", "in its name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mount.ParseOptions([]string{"nosuid", c.flag})
			require.ErrorIs(t, err, backends.ErrInvalid)
			require.ErrorContains(t, err, c.reason)
			require.NotContains(t, err.Error(), "secret", "values may be sensitive")
		})
	}
}

func TestOptionsWithLeavesTheReceiverAlone(t *testing.T) {
	t.Parallel()
	o, err := mount.ParseOptions([]string{"rw,noatime,nouuid"})
	require.NoError(t, err)
	first, err := o.With("ro")
	require.NoError(t, err)
	second, err := o.With("noexec", "norecovery,nouuid")
	require.NoError(t, err)

	require.Equal(t, "rw,noatime,nouuid", o.String())
	require.Equal(t, "noatime,nouuid,ro", first.String())
	require.Equal(t, "rw,noatime,noexec,norecovery,nouuid", second.String())
	require.Equal(t, []bool{false, true, false}, []bool{o.ReadOnly(), first.ReadOnly(), second.ReadOnly()})

	_, err = o.With("bind")
	require.ErrorIs(t, err, backends.ErrInvalid)
}

func TestOptionsAttributesAndParameters(t *testing.T) {
	t.Parallel()
	o, err := mount.ParseOptions([]string{"nouuid,ro,sync", `context="a,b"`, "noexec"})
	require.NoError(t, err)
	require.Equal(t, "ro,noexec", o.Attributes().String())
	require.Equal(t, `nouuid,ro,sync,context="a,b",noexec`, o.String())
	require.Equal(t, []string{"nouuid", "sync", `context="a,b"`}, o.Parameters())
	require.Empty(t, mount.Options{}.Attributes().String())
	require.Empty(t, mount.Options{}.Parameters())
	require.False(t, mount.Options{}.ReadOnly())
}

func FuzzParseOptions(f *testing.F) {
	f.Add("ro,noatime", `context="u:r:t:s0:c1,c2"`)
	f.Add("noatime,atime,,=", `a=b\`)
	f.Fuzz(func(t *testing.T, first, second string) {
		o, err := mount.ParseOptions([]string{first, second})
		if err != nil {
			require.ErrorIs(t, err, backends.ErrInvalid)
			return
		}
		again, err := mount.ParseOptions([]string{o.String()})
		require.NoError(t, err)
		require.Equal(t, o, again)

		added, err := mount.Options{}.With(first)
		require.NoError(t, err)
		added, err = added.With(second)
		require.NoError(t, err)
		require.Equal(t, o.String(), added.String(), "one by one or at once")
		require.False(t, strings.ContainsAny(o.String(), "\x00\n"))
	})
}
