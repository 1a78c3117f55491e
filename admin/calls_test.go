package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
)

func TestCallsAreFiltered(t *testing.T) {
	t.Parallel()
	d := start(t)
	a, b := d.create("a"), d.create("b")
	d.up(a)
	_, err := d.attach(b, "node-2")
	require.NoError(t, err)
	require.Equal(t, []string{
		"CreateVolume", "CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "ControllerPublishVolume",
	}, methods(d.calls("")))

	for query, want := range map[string][]string{
		"?method=Node*":                      {"NodeStageVolume", "NodePublishVolume"},
		"?method=CreateVolume%7Bname%3Db%7D": {"CreateVolume"},
		"?volume=" + b:                       {"CreateVolume", "ControllerPublishVolume"},
		"?node=node-2":                       {"ControllerPublishVolume"},
		"?node=node-2&volume=" + a:           {},
		"?since=4":                           {"NodePublishVolume", "ControllerPublishVolume"},
		"?since=1h&limit=1":                  {"ControllerPublishVolume"},
		"?limit=2&method=Create*":            {"CreateVolume", "CreateVolume"},
		"?since=1ns":                         {},
		"?since=99":                          {},
	} {
		require.Equal(t, want, methods(d.calls(query)), query)
	}
	for query, reason := range map[string]string{
		"?method=Explode": "no RPC", "?method=CreateVolume{": "a word is missing", "?since=soon": "neither the number", "?since=-5m": "neither the number",
		"?limit=0": "no number from 1", "?limit=x": "no number from 1", "?follow=perhaps": "neither true nor false", "?volumes=x": "none of method",
	} {
		var raw json.RawMessage
		err := d.client.Get(t.Context(), "/v1/calls"+query, &raw)
		require.ErrorIs(t, err, backends.ErrInvalid, query)
		require.ErrorContains(t, err, reason, query)
	}
}

func TestOneCall(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.create("a")
	var e journal.Entry
	require.NoError(t, d.client.Get(t.Context(), "/v1/calls/1", &e))
	require.Equal(t, "a", e.Name)
	require.Equal(t, codes.OK, e.Code)
	require.Equal(t, "a", e.Request.(*csi.CreateVolumeRequest).GetName())
	require.ErrorIs(t, d.client.Get(t.Context(), "/v1/calls/2", &e), backends.ErrNotFound)
	require.ErrorIs(t, d.client.Get(t.Context(), "/v1/calls/x", &e), backends.ErrInvalid)
	require.ErrorIs(t, d.client.Get(t.Context(), "/v1/calls/0", &e), backends.ErrInvalid)
}

func TestCallUnderWayIsListed(t *testing.T) {
	t.Parallel()
	d := start(t)
	id, err := d.emulator.InjectText(t.Context(), "CreateVolume: hang")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); d.create("a") }()
	require.Eventually(t, func() bool {
		entries := d.calls("")
		return len(entries) == 1 && !entries[0].Done && entries[0].Fault != ""
	}, patience, tick)
	require.NoError(t, d.client.Delete(t.Context(), "/v1/faults/"+id))
	<-done
	require.True(t, d.calls("")[0].Done)
}

func TestCallsAreFollowed(t *testing.T) {
	t.Parallel()
	d := start(t)
	for i := range 4 {
		d.create(fmt.Sprintf("before-%d", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var names []string
	for line, err := range d.client.Lines(ctx, "/v1/calls?follow=1&limit=2&method=CreateVolume") {
		require.NoError(t, err)
		var e journal.Entry
		require.NoError(t, json.Unmarshal(line, &e))
		if names = append(names, e.Name); len(names) == 2 {
			_, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
			require.NoError(t, err)
			d.create("after")
		}
		if len(names) == 3 {
			cancel() // it ends without an error
		}
	}
	require.Equal(t, []string{"before-2", "before-3", "after"}, names)
}

// A stream does not hold up the end of the endpoint, and says that it ended.
func TestStreamEndsWithTheServer(t *testing.T) {
	t.Parallel()
	d := start(t)
	l, err := admin.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- admin.New(admin.Options{Emulator: d.emulator}).Serve(ctx, l) }()
	client, err := admin.NewClient(admin.Address(l))
	require.NoError(t, err)
	defer client.Close()
	for line, err := range client.Lines(t.Context(), "/v1/nodes?watch=1") {
		if err != nil {
			require.ErrorContains(t, err, "has ended")
			break
		}
		require.Contains(t, string(line), "node-1")
		cancel()
	}
	require.NoError(t, <-served)
}

func TestDroppedCallsAreCounted(t *testing.T) {
	t.Parallel()
	d := start(t, func(c *emulator.Config, _ *admin.Options) { c.Journal = journal.New(journal.Options{Capacity: 2}) })
	for i := range 5 {
		d.create(strconv.Itoa(i))
	}
	require.Len(t, d.calls(""), 2)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/v1/calls", nil)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "3", answer.Header.Get(admin.DroppedHeader))
	_, page := d.do(http.MethodGet, "/", "")
	require.Contains(t, page, "3 older calls are not kept any more")
}
