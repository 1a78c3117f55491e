package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/store"
	"github.com/csiemu/csiemu/conformance"
	"github.com/csiemu/csiemu/journal"
)

const conformText = `Hold a driver against the specification of CSI 1.13, clause by clause, and print a
table of rows that pass, fail or are skipped with the reason. Volumes are made,
published, filled and taken away again: give a driver that nobody depends on.

A row that SIGINT or SIGTERM interrupts still takes away what it made, and what it
cannot take away is named.

Exit status: 0 no row failed, 1 a row failed, was interrupted or left something
behind, 2 wrong command line or no driver at the endpoint.`

const conformExample = `  csiemu conform --endpoint unix:///run/csi/csi.sock --size 1GiB
  csiemu conform --endpoint unix:///run/controller.sock --node-endpoint unix:///run/node.sock --run '^Node'
  csiemu conform --backend memory -o json
  csiemu conform --list`

// conformFlags are the flags of conform, as they were given.
type conformFlags struct {
	endpoint, nodeEndpoint, backend, secondNode string
	dir, size, access, fsType                   string
	parameters, other, snapshot                 []string
	mutable, modified, refused, topology        []string
	secretsFile, run, output                    string
	timeout                                     time.Duration
	noData, mustOnly, list                      bool
}

func newConform() *cobra.Command {
	var f conformFlags
	cmd := &cobra.Command{
		Use:     "conform",
		Short:   "Hold a driver against the specification",
		Long:    conformText,
		Example: conformExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Further signals must not interrupt the taking away.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.conform(ctx, cmd.OutOrStdout())
		},
	}
	f.define(cmd.Flags())
	return cmd
}

// define defines the flags, in the order in which --help shows them.
func (f *conformFlags) define(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.endpoint, "endpoint", "", "where the driver serves, unix://PATH.sock (also CSI_ENDPOINT)")
	flags.StringVar(&f.nodeEndpoint, "node-endpoint", "", "where its Node service is, if it is elsewhere")
	flags.StringVar(&f.backend, "backend", "", "instead of a driver at an endpoint, an emulator of this process: "+strings.Join(store.Names(), ", "))
	flags.StringVar(&f.dir, "dir", "", "where staging and target paths are made, on this host (default the directory for temporary files)")
	flags.StringVar(&f.size, "size", "", "size of volumes; rows double and fill it (default 1GiB, with --backend 32MiB)")
	flags.StringVar(&f.access, "access", "mount", "access type where a row needs any volume: mount, block")
	flags.StringVar(&f.fsType, "fs-type", "", "file system of volumes (default the driver's)")
	flags.StringSliceVar(&f.parameters, "parameter", nil, "`KEY=VALUE` for every CreateVolume; repeat for more")
	flags.StringSliceVar(&f.other, "other-parameter", nil, "`KEY=VALUE` of parameters that make another kind of volume")
	flags.StringSliceVar(&f.snapshot, "snapshot-parameter", nil, "`KEY=VALUE` for every CreateSnapshot")
	flags.StringSliceVar(&f.mutable, "mutable-parameter", nil, "mutable `KEY=VALUE` for every CreateVolume")
	flags.StringSliceVar(&f.modified, "modified-parameter", nil, "mutable `KEY=VALUE` that a volume can be changed to")
	flags.StringSliceVar(&f.refused, "refused-parameter", nil, "mutable `KEY=VALUE` that the driver has to refuse")
	flags.StringSliceVar(&f.topology, "other-topology", nil, "`KEY=VALUE` of a topology where volumes can be made and the node is not")
	flags.StringVar(&f.secondNode, "second-node", "", "id of a further node, for rows about two nodes")
	flags.StringVar(&f.secretsFile, "secrets-file", "", "JSON file with secrets by RPC, as in {\"CreateVolume\": {\"key\": \"value\"}}; \"\" is every other RPC")
	flags.BoolVar(&f.noData, "no-data", false, "leave out rows that look at published volumes: the node is on another host, or keeps no bytes")
	flags.BoolVar(&f.mustOnly, "must-only", false, "leave out rows of what the specification only recommends")
	flags.StringVar(&f.run, "run", "", "regular expression of rows to run, as in '^CreateVolume: refuses'")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "deadline of each call")
	flags.BoolVar(&f.list, "list", false, "print the rows and call no driver")
	flags.StringVarP(&f.output, "output", "o", "text", "form of the answer: text, json")
	flags.Lookup("endpoint").Annotations = map[string][]string{alsoFrom: {"CSI_ENDPOINT"}}
}

// conform is the command: it connects to the driver, or serves one, and runs the
// rows.
func (f *conformFlags) conform(ctx context.Context, out io.Writer) (err error) {
	if f.output != "text" && f.output != "json" {
		return usage("read --output: %q is no form: give text or json", f.output)
	}
	tests, err := f.tests()
	if err != nil {
		return err
	}
	if f.list {
		return listRows(out, tests, f.output)
	}
	target, err := f.target()
	if err != nil {
		return err
	}
	end := func() error { return nil }
	if f.backend != "" {
		end, err = serveTarget(ctx, f.backend, target)
	} else {
		end, err = f.dial(target)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()

	info, err := f.reach(ctx, target)
	if err != nil {
		return err
	}
	report := conformReport{Driver: info.GetName(), Version: info.GetVendorVersion()}
	table := newTable(out, tests, f.output)
	table.begin(report)
	for _, test := range tests {
		result, err := checkRow(ctx, test, target)
		if err != nil {
			return fmt.Errorf("interrupted after %d of %d rows: %w", len(report.Rows), len(tests), err)
		}
		report.add(result)
		table.row(result)
		if result.Outcome == conformance.Fail {
			if err := f.waitFor(ctx, target); err != nil {
				return fmt.Errorf("the driver does not answer any more after row %q: %w", test.RPC+": "+test.Name, err)
			}
		}
	}
	if err := table.end(report); err != nil {
		return err
	}
	if report.Failed > 0 {
		return fmt.Errorf("%d of %d rows failed", report.Failed, len(tests))
	}
	return nil
}

// tests are the rows that the flags choose.
func (f *conformFlags) tests() ([]conformance.Test, error) {
	chosen, err := regexp.Compile(f.run)
	if err != nil {
		return nil, usage("read --run: %w", err)
	}
	var tests []conformance.Test
	for _, test := range conformance.Ordered() {
		if chosen.MatchString(test.RPC+": "+test.Name) && (!f.mustOnly || test.Level == conformance.Must) {
			tests = append(tests, test)
		}
	}
	if len(tests) == 0 {
		return nil, usage("read --run: no row matches %q: see csiemu conform --list", f.run)
	}
	return tests, nil
}

// reach asks the driver for its name.
func (f *conformFlags) reach(ctx context.Context, target *conformance.Target) (*csi.GetPluginInfoResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	info, err := csi.NewIdentityClient(target.Controller).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return nil, usage("reach the driver: %w", err)
	}
	return info, nil
}

// waitFor waits for a driver that a row may have ended, and that something may
// start again.
func (f *conformFlags) waitFor(ctx context.Context, target *conformance.Target) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	_, err := csi.NewIdentityClient(target.Controller).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	return err
}

// dial connects a target to the endpoints; end closes the connections.
func (f *conformFlags) dial(target *conformance.Target) (end func() error, err error) {
	controller, err := dialDriver(f.endpoint)
	if err != nil {
		return nil, usage("read --endpoint: %w", err)
	}
	target.Controller = controller
	if f.nodeEndpoint == "" {
		return controller.Close, nil
	}
	node, err := dialDriver(f.nodeEndpoint)
	if err != nil {
		return nil, errors.Join(usage("read --node-endpoint: %w", err), controller.Close())
	}
	target.Node = node
	return func() error { return errors.Join(controller.Close(), node.Close()) }, nil
}

func dialDriver(endpoint string) (*grpc.ClientConn, error) {
	soon := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}
	return grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: 5 * time.Second}))
}

// target reads what the flags say of the driver.
func (f *conformFlags) target() (*conformance.Target, error) {
	switch {
	case f.endpoint == "" && f.backend == "":
		return nil, usage("no driver: give --endpoint unix:///path/csi.sock, set CSI_ENDPOINT, or give --backend")
	case f.backend != "" && f.endpoint != "":
		return nil, usage("--backend serves a driver of its own: give it or --endpoint (or CSI_ENDPOINT)")
	case f.backend != "" && f.nodeEndpoint != "":
		return nil, usage("--backend serves a driver of its own: give it or --node-endpoint")
	case f.access != "mount" && f.access != "block":
		return nil, usage("read --access: %q is no access type: give mount or block", f.access)
	case f.timeout <= 0:
		return nil, usage("read --timeout: %s is no deadline: give 30s or more", f.timeout)
	}
	target := &conformance.Target{
		SecondNodeID: f.secondNode, NoData: f.noData, Block: f.access == "block", FSType: f.fsType, Timeout: f.timeout,
	}
	if f.backend != "" {
		if err := store.Check(f.backend, "."); err != nil {
			return nil, usageError{err}
		}
		target.VolumeBytes = backendVolumeBytes
	}
	var err error
	if f.size != "" {
		if target.VolumeBytes, err = parseSize("size", f.size); err != nil {
			return nil, err
		}
	}
	if target.Dir, err = filepath.Abs(cmp.Or(f.dir, os.TempDir())); err != nil {
		return nil, usage("read --dir: %w", err)
	}
	if info, err := os.Stat(target.Dir); err == nil && !info.IsDir() {
		return nil, usage("read --dir: %s is no directory", target.Dir)
	} else if err != nil && !f.noData {
		return nil, usage("read --dir: %w", err)
	}
	for _, m := range []struct {
		flag   string
		values []string
		into   *map[string]string
	}{
		{"parameter", f.parameters, &target.Parameters},
		{"other-parameter", f.other, &target.OtherParameters},
		{"snapshot-parameter", f.snapshot, &target.SnapshotParameters},
		{"mutable-parameter", f.mutable, &target.MutableParameters},
		{"modified-parameter", f.modified, &target.ModifiedParameters},
		{"refused-parameter", f.refused, &target.RefusedParameters},
		{"other-topology", f.topology, &target.OtherTopology},
	} {
		if *m.into, err = parsePairs(m.flag, m.values); err != nil {
			return nil, err
		}
	}
	target.Secrets, err = readSecrets(f.secretsFile)
	return target, err
}

// parsePairs reads the values of a flag, each KEY=VALUE.
func parsePairs(flag string, values []string) (map[string]string, error) {
	var pairs map[string]string
	for _, value := range values {
		key, text, ok := strings.Cut(strings.TrimSpace(value), "=")
		if !ok || key == "" {
			return nil, usage("read --%s: %q is no pair: give KEY=VALUE", flag, value)
		}
		if _, twice := pairs[key]; twice {
			return nil, usage("read --%s: key %q is given twice", flag, key)
		}
		if pairs == nil {
			pairs = map[string]string{}
		}
		pairs[key] = text
	}
	return pairs, nil
}

// readSecrets reads a file of secrets. Its content never gets into an error.
func readSecrets(file string) (secrets map[string]map[string]string, err error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, usage("read --secrets-file: %w", err)
	}
	if json.Unmarshal(b, &secrets) != nil {
		return nil, usage("read --secrets-file: %s is not of the form {\"CreateVolume\": {\"key\": \"value\"}}", file)
	}
	for rpc := range secrets {
		if rpc != "" && !slices.Contains(journal.Methods(), rpc) {
			return nil, usage("read --secrets-file: CSI has no RPC %q", rpc)
		}
	}
	return secrets, nil
}
