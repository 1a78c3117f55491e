package admin_test

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
)

func containsLine(text, line string) bool { return slices.Contains(strings.Split(text, "\n"), line) }

// The page is whole without any script.
func TestPageWithoutScripts(t *testing.T) {
	t.Parallel()
	d := start(t)
	token := d.token()
	code, _ := d.form("do=add&rule=ControllerPublishVolume%3A+2*return(UNAVAILABLE)-%3Eok&token=" + token)
	require.Equal(t, http.StatusSeeOther, code)
	id := d.create("pvc-1")
	for range 2 {
		_, err := d.attach(id, "node-1")
		require.Error(t, err)
	}
	d.up(id)

	_, page := d.do(http.MethodGet, "/", "")
	for _, want := range []string{
		"memory.csiemu.dev", `<a href="/volumes/` + id + `">pvc-1</a>`, "16 MiB", "healthy", "node-1", "node-2", "attached", "staged", "published",
		"ControllerPublishVolume: 2*return(UNAVAILABLE)-&gt;ok", "fired 2×", "3 attempts", "2 earlier attempts", "UNAVAILABLE",
		"driver.Journal().Want(t,", "`CreateVolume{code=OK,name=pvc-1}`,", "`ControllerPublishVolume{code=OK,node=node-1}`,",
	} {
		require.Contains(t, page, want)
	}
	require.Equal(t, 1, strings.Count(page, "<b>ControllerPublishVolume</b>"), "retries are folded")

	_, life := d.do(http.MethodGet, "/volumes/"+id, "")
	for _, want := range []string{"<h1>pvc-1", "<th>controller</th>", "<th>node-1</th>", "<th>node-2</th>", "NodePublishVolume", "`NodeStageVolume{code=OK,node=node-1}`,"} {
		require.Contains(t, life, want)
	}

	code, _ = d.form("do=remove&id=fault-1&token=" + token)
	require.Equal(t, http.StatusSeeOther, code)
	require.Empty(t, d.emulator.Faults())
	for _, values := range []string{"do=remove&id=fault-1", "do=explode", "do=add&rule=CreateVolume%3A+explode"} {
		code, page := d.form(values + "&token=" + token)
		require.GreaterOrEqual(t, code, http.StatusBadRequest, values)
		require.Contains(t, page, `role="alert"`, values)
	}
	code, page = d.form("do=add&rule=CreateVolume%3A+explode&token=" + token)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, page, `value="CreateVolume: explode"`, "what was typed is kept")
}

// What the page asserts holds of the journal that it was taken from.
func TestCopiedTestHolds(t *testing.T) {
	t.Parallel()
	d := start(t)
	id := d.create("pvc-1")
	d.up(id)
	_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	require.Error(t, err)
	_, life := d.do(http.MethodGet, "/volumes/"+id, "")
	var steps []string
	for _, line := range strings.Split(life, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "`") {
			steps = append(steps, strings.Trim(line, "`,"))
		}
	}
	require.Len(t, steps, 5)
	require.Equal(t, "DeleteVolume{code=FAILED_PRECONDITION}", steps[4])
	d.emulator.Journal().Want(t, steps...)
}

func TestDeletedVolumeHasItsTimeline(t *testing.T) {
	t.Parallel()
	d := start(t)
	id := d.create("pvc-1")
	_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	require.NoError(t, err)
	code, life := d.do(http.MethodGet, "/volumes/"+id, "")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, life, "deleted")
	require.Contains(t, life, "<b>DeleteVolume</b>")
}

func TestEventsBringTheParts(t *testing.T) {
	t.Parallel()
	d := start(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/events", nil)
	require.NoError(t, err)
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	lines := bufio.NewScanner(answer.Body)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		require.Fail(t, "the stream ended", "before %s: %v", text, lines.Err())
	}
	for _, part := range []string{"token", "summary", "volumes", "attachments", "faults", "calls"} {
		until("event: " + part)
	}
	d.create("pvc-1")
	until("event: summary")
	until("event: volumes")
	until("pvc-1")
	until("event: calls")
	until("<b>CreateVolume</b>")
	_, err = d.emulator.InjectText(t.Context(), "CreateVolume: drop") // no call
	require.NoError(t, err)
	until("CreateVolume: drop")
}
