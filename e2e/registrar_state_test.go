package e2e_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// readiness is what /readyz of a registrar answers.
type readiness struct {
	OK     bool
	Detail struct {
		Driver, NodeID, Problem, LastError string
		Offers                             int
		DriverReachable, Registered        bool
		LastGetInfo, LastNotify            time.Time
		CSIDriverObject                    string
	}
}

// askEvery is how often a process that tells nobody is asked.
const askEvery = 50 * time.Millisecond

// ready asks a registrar at the socket of its HTTP endpoint until it answers as it
// should.
func (s *stage) ready(socket, what string, is func(readiness) bool) readiness {
	s.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	again := time.NewTicker(askEvery)
	defer again.Stop()
	var last readiness
	for {
		request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://registrar/readyz?format=json", http.NoBody)
		require.NoError(s, err)
		reply, err := client.Do(request)
		if err == nil {
			var now readiness
			err = json.NewDecoder(reply.Body).Decode(&now)
			require.NoError(s, reply.Body.Close())
			require.NoError(s, err)
			if last = now; is(now) {
				return now
			}
		}
		select {
		case <-again.C:
		case <-s.ctx.Done():
			require.Failf(s, "the registrar does not get there", "%s: %v; last %+v", what, err, last)
		}
	}
}

// allWell is the readiness of a registrar that has done its work.
func allWell(r readiness) bool { return r.OK }

// answers waits until a driver answers at a socket, and returns when it first did.
func (s *stage) answers(socket string) time.Time {
	s.Helper()
	soon := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 20 * time.Millisecond}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	require.NoError(s, err)
	defer conn.Close()
	_, err = csi.NewIdentityClient(conn).GetPluginInfo(s.ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	require.NoError(s, err)
	return time.Now()
}
