package fault_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/fault"
	"github.com/csiemu/csiemu/journal"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"CreateVolume: return(UNAVAILABLE)":    "CreateVolume: return(UNAVAILABLE)",
		"  * :ok":                              "*: ok",
		"*:2*return( INTERNAL , \"on fire\" )": `*: 2*return(INTERNAL,"on fire")`,
		"ControllerPublishVolume{node=n}: 2*return(ABORTED)->1*sleep(3m)->drop->ok": "ControllerPublishVolume{node=n}: 2*return(ABORTED)->sleep(3m0s)->drop->ok",
		"Node*: 3*12.5%hang":         "Node*: 3*12.5%hang",
		"CreateSnapshot: after(30s)": "CreateSnapshot: after(30s)",
		"CreateSnapshot: polls(3)":   "CreateSnapshot: polls(3)",
		"CreateVolume{volume=a,param.pool=x}: crash(array.volume.ready)": "CreateVolume{param.pool=x,volume=a}: crash(array.volume.ready)",
		"CreateVolume: 1*partial(array.volume.filled)":                   "CreateVolume: 1*partial(array.volume.filled)",
		"Volume{volume=vol-*}: eio":                                      "Volume{volume=vol-*}: eio",
		"Volume{name=a}: eio(writes,4096,512)":                           "Volume{name=a}: eio(writes,4096,512)",
		"Volume: full(95%)":                                              "Volume: full(95%)",
		"Volume: slow(50ms)":                                             "Volume: slow(50ms)",
		"Volume: corrupt(0,512)":                                         "Volume: corrupt(0,512)",
		`Volume: health(DEGRADED,"SlowDisk")`:                            `Volume: health(DEGRADED,"SlowDisk")`,
		"Volume: gone":                                                   "Volume: gone",
	} {
		r, err := fault.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, r.String(), text)
	}
	for text, reason := range map[string]string{
		"":                                        "no method",
		"CreateVolume":                            "no colon",
		"CreateVolume:":                           `"" is none of`,
		"CreateVolume: explode":                   `"explode" is none of`,
		"CreateVolume: return":                    "want a code",
		"CreateVolume: return(FINE)":              "no gRPC code",
		"CreateVolume: return(OK)":                "action ok",
		"CreateVolume: return(ABORTED":            "not closed",
		`CreateVolume: return(ABORTED,"x)`:        "not closed",
		"CreateVolume: 0*ok":                      "no number of calls",
		"CreateVolume: 200%ok":                    "no percentage",
		"CreateVolume: sleep(soon)":               "no duration",
		"CreateVolume: sleep(-1s)":                "no duration",
		"CreateVolume: hang(3)":                   "takes no arguments",
		"CreateVolume: crash(nowhere)":            "no kill point",
		"DeleteVolume: crash(array.volume.ready)": "does not pass",
		"CreateVolume: ok->":                      `"" is none of`,
		"CreateVolume: ok ok":                     "follows the action",
		"CreateVolume: eio":                       "fault of a volume",
		"Volume: ok":                              "fault of calls",
		"Volume: eio->heal":                       "one action",
		"Volume: 2*eio":                           "neither a number",
		"Volume{node=n}: eio":                     "volume= or name=",
		"Volume: corrupt(1)":                      "offset and a length",
		"Volume: corrupt(9223372036854775807,1)":  "no offset and length",
		"Volume: full(95)":                        "percentage",
		"Volume: health(SICK,\"X\")":              "none of",
	} {
		_, err := fault.Parse(text)
		require.ErrorIs(t, err, backends.ErrInvalid, text)
		require.ErrorContains(t, err, reason, text)
	}
}

func add(j *fault.Injector, text string) (string, error) {
	r, err := fault.Parse(text)
	if err != nil {
		return "", err
	}
	return j.Add(r)
}

// entry is that of a call about a volume on a node.
func entry(volume, node string) *journal.Entry {
	j := journal.New(journal.Options{})
	return j.Begin("/csi.v1.Controller/ControllerPublishVolume", "", &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node}).Entry()
}

// fired is what an injector does to a number of the same calls.
func fired(j *fault.Injector, e *journal.Entry, calls int) []string {
	var all []string
	for range calls {
		f, fires := j.Decide(e)
		text := ""
		if fires {
			text = f.Action.String()
		}
		all = append(all, text)
	}
	return all
}

func TestChainTakesCallAfterCall(t *testing.T) {
	t.Parallel()
	j := fault.NewInjector(fault.Options{})
	_, err := add(j, "ControllerPublishVolume{node=n1}: 2*return(ABORTED)->drop->1*hang")
	require.NoError(t, err)
	require.Equal(t, []string{""}, fired(j, entry("v", "n2"), 1), "another node")
	require.Equal(t, []string{"2*return(ABORTED)", "2*return(ABORTED)", "1*drop", "1*hang", ""}, fired(j, entry("v", "n1"), 5))
	s := j.List()
	require.Equal(t, 4, s[0].Fired)
	require.True(t, s[0].Spent)
}

func TestLastActionTakesAllThatAreLeft(t *testing.T) {
	t.Parallel()
	j := fault.NewInjector(fault.Options{})
	_, err := add(j, "*: ok->return(ABORTED)")
	require.NoError(t, err)
	_, err = add(j, "*: return(INTERNAL)")
	require.NoError(t, err)
	require.Equal(t, []string{"1*ok", "return(ABORTED)", "return(ABORTED)"}, fired(j, entry("v", "n"), 3), "ok keeps later rules out")
}

func TestPercentageIsSeededAndGivesTheOthersToTheNextRule(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) []string {
		j := fault.NewInjector(fault.Options{Seed: seed})
		_, err := add(j, "*: 30%return(ABORTED)")
		require.NoError(t, err)
		_, err = add(j, "*: sleep(1s)")
		require.NoError(t, err)
		return fired(j, entry("v", "n"), 1000)
	}
	first := run(7)
	require.Equal(t, first, run(7))
	require.NotEqual(t, first, run(8))
	n := 0
	for _, f := range first {
		if f == "30%return(ABORTED)" {
			n++
		} else {
			require.Equal(t, "sleep(1s)", f)
		}
	}
	require.InDelta(t, 300, n, 60)
}

func TestRemoveReleasesWhatHangs(t *testing.T) {
	t.Parallel()
	j := fault.NewInjector(fault.Options{})
	id, err := add(j, "*: hang")
	require.NoError(t, err)
	f, fires := j.Decide(entry("v", "n"))
	require.True(t, fires)
	select {
	case <-f.Released:
		require.Fail(t, "released early")
	default:
	}
	require.NoError(t, j.Remove(id))
	<-f.Released
	require.ErrorIs(t, j.Remove(id), backends.ErrNotFound)
	require.Empty(t, j.List())
}

func TestSlowProgressIsThatOfEachThing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := fault.NewInjector(fault.Options{})
		_, err := add(j, "ControllerPublishVolume: after(30s)")
		require.NoError(t, err)
		ready := func(volume string) bool {
			f, fires := j.Decide(entry(volume, "n"))
			require.True(t, fires)
			return f.Ready
		}
		require.False(t, ready("a"))
		time.Sleep(20 * time.Second) //nolint:forbidigo // the clock of the bubble
		require.False(t, ready("a"))
		require.False(t, ready("b"))
		time.Sleep(10 * time.Second) //nolint:forbidigo // the clock of the bubble
		require.True(t, ready("a"))
		require.False(t, ready("b"))
		j.Clear()
		_, err = add(j, "ControllerPublishVolume: polls(2)")
		require.NoError(t, err)
		require.Equal(t, []bool{false, false, true, true}, []bool{ready("a"), ready("a"), ready("a"), ready("a")})
	})
}

func TestFaultsOfBytes(t *testing.T) {
	t.Parallel()
	j := fault.NewInjector(fault.Options{})
	require.False(t, j.HasBytes())
	id, err := add(j, "Volume{volume=vol-1}: eio(writes)")
	require.NoError(t, err)
	_, err = add(j, "Volume{name=data-*}: slow(5ms)")
	require.NoError(t, err)
	require.True(t, j.HasBytes())
	require.Len(t, j.OnBytes("vol-1", "data-0"), 2)
	require.Len(t, j.OnBytes("vol-1", "other"), 1)
	require.Empty(t, j.OnBytes("vol-2", "other"))
	require.Equal(t, []string{""}, fired(j, entry("vol-1", "n"), 1), "they are not about calls")
	require.NoError(t, j.Remove(id))
	require.Empty(t, j.OnBytes("vol-1", "other"))
}

func TestFiringIsNamedInTheJournal(t *testing.T) {
	t.Parallel()
	j := fault.NewInjector(fault.Options{})
	_, err := add(j, `*: return(UNAVAILABLE,"later")`)
	require.NoError(t, err)
	f, _ := j.Decide(entry("v", "n"))
	require.Equal(t, `fault-1: return(UNAVAILABLE,"later")`, f.String())
	require.Equal(t, codes.Unavailable, f.Action.Code)
}

func TestRuleMadeInGoIsChecked(t *testing.T) {
	t.Parallel()
	j := fault.NewInjector(fault.Options{})
	for name, r := range map[string]fault.Rule{
		"no action":             {Match: journal.Match{Method: fault.VolumeMethod}},
		"unknown action":        {Chain: []fault.Action{{Verb: "explode"}}},
		"endless but not last":  {Chain: []fault.Action{{Verb: fault.OK}, {Verb: fault.Drop}}},
		"more than all of them": {Chain: []fault.Action{{Verb: fault.OK, Percent: 101}}},
	} {
		_, err := j.Add(r)
		require.ErrorIs(t, err, backends.ErrInvalid, name)
	}
	require.Empty(t, j.List())
}

func TestRuleConfinedToAVolume(t *testing.T) {
	t.Parallel()
	j := fault.NewInjector(fault.Options{})
	r, err := fault.Parse("*: return(ABORTED)")
	require.NoError(t, err)
	_, err = j.Add(r.Confine("a*"))
	require.NoError(t, err)
	_, fires := j.Decide(entry("id", "n"))
	require.False(t, fires, "its id is not known")
	j.Identify("a*", "id")
	_, fires = j.Decide(entry("id", "n"))
	require.True(t, fires)
	_, fires = j.Decide(entry("other", "n"))
	require.False(t, fires)
}

func TestExemptHealsOneVolume(t *testing.T) {
	t.Parallel()
	j := fault.NewInjector(fault.Options{})
	id, err := add(j, "Volume: eio")
	require.NoError(t, err)
	j.Exempt(id, "v1")
	require.Empty(t, j.OnBytes("v1", ""))
	require.Len(t, j.OnBytes("v2", ""), 1)
}

// FuzzParse reads what it wrote.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"CreateVolume: return(UNAVAILABLE)", "*{node=a}: 2*10%sleep(3m)->drop->ok", `Volume{volume="a b"}: eio(reads,0,1)`,
		`*: return(INTERNAL,"a\"b")`, "Volume: full(0.5%)", "*: crash(array.volume.ready)->polls(2)->after(1h)", "*:", "Volume*: ok",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := fault.Parse(text)
		if err != nil {
			return
		}
		again, err := fault.Parse(r.String())
		require.NoError(t, err, r.String())
		require.Equal(t, r, again, r.String())
	})
}
