package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/fault"
)

func TestFaultsAreAddedListedAndRemoved(t *testing.T) {
	t.Parallel()
	d := start(t)
	ctx := t.Context()
	var all []fault.Status
	require.NoError(t, d.client.Get(ctx, "/v1/faults", &all))
	require.Empty(t, all)

	var added admin.FaultAdded
	require.NoError(t, d.client.Post(ctx, "/v1/faults", admin.FaultRequest{Rule: "ControllerPublishVolume:2*return(UNAVAILABLE)->ok"}, &added))
	require.Equal(t, admin.FaultAdded{ID: "fault-1", Rule: "ControllerPublishVolume: 2*return(UNAVAILABLE)->ok"}, added)
	id := d.create("a")
	_, err := d.attach(id, "node-1")
	require.Error(t, err)
	require.NoError(t, d.client.Get(ctx, "/v1/faults", &all))
	require.Len(t, all, 1)
	require.Equal(t, 1, all[0].Fired)
	require.Equal(t, added.Rule, all[0].Text)

	require.NoError(t, d.client.Delete(ctx, "/v1/faults/fault-1"))
	_, err = d.attach(id, "node-1")
	require.NoError(t, err)
	require.ErrorIs(t, d.client.Delete(ctx, "/v1/faults/fault-1"), backends.ErrNotFound)

	for range 2 {
		require.NoError(t, d.client.Post(ctx, "/v1/faults", admin.FaultRequest{Rule: "CreateVolume: drop"}, &added))
	}
	require.NoError(t, d.client.Delete(ctx, "/v1/faults"))
	require.Empty(t, d.emulator.Faults())
}

func TestFaultsThatCannotBeAreExplained(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.create("a")
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"rule":"CreateVolume: explode"}`:         {http.StatusBadRequest, "is none of"},
		`{"rule":""}`:                              {http.StatusBadRequest, "no method"},
		`{"rules":"CreateVolume: ok"}`:             {http.StatusBadRequest, "unknown field"},
		`{"rule":"CreateVolume: ok"} {"rule":"x"}`: {http.StatusBadRequest, "more than one value"},
		`CreateVolume: ok`:                         {http.StatusBadRequest, "read the body"},
		`{"rule":"Volume{name=a}: eio"}`:           {http.StatusConflict, "keeps no bytes"},
	} {
		status, text := d.do(http.MethodPost, "/v1/faults", body, meant)
		require.Equal(t, want.status, status, body)
		require.Contains(t, text, `"error": "`, body)
		require.Contains(t, text, want.text, body)
	}
	require.Empty(t, d.emulator.Faults())
}

func TestBodyThatIsTooLong(t *testing.T) {
	t.Parallel()
	d := start(t)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/faults", strings.NewReader(`{"rule":"`+strings.Repeat("a", 2<<20)+`"}`))
	meant(r)
	admin.New(admin.Options{Emulator: d.emulator}).ServeHTTP(w, r)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code, w.Body.String())
}

func TestFaultOfHealthIsHealed(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.create("a")
	var added admin.FaultAdded
	require.NoError(t, d.client.Post(t.Context(), "/v1/faults", admin.FaultRequest{Rule: `Volume{name=a}: health(DEGRADED,"SlowDisk")`}, &added))
	require.Equal(t, "fault-1", added.ID)
	_, page := d.do(http.MethodGet, "/", "")
	require.Contains(t, page, "DEGRADED: SlowDisk")
	var healed admin.FaultAdded
	require.NoError(t, d.client.Post(t.Context(), "/v1/faults", admin.FaultRequest{Rule: `Volume: heal`}, &healed))
	require.Equal(t, admin.FaultAdded{Rule: "Volume: heal"}, healed)
	require.Empty(t, d.emulator.Faults())
}

func TestKillPointsAreListed(t *testing.T) {
	t.Parallel()
	var points []fault.KillPoint
	require.NoError(t, start(t).client.Get(t.Context(), "/v1/faults/points", &points))
	require.Equal(t, fault.KillPoints(), points)
	require.NotEmpty(t, points)
}
