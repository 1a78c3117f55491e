package emulator

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/fault"
)

// classFaults are the faults of volumes whose class has the parameter fault
// (array.FaultParameter). It is safe for concurrent use.
type classFaults struct {
	mu sync.Mutex
	// byName are the ids of the faults of each volume.
	byName map[string][]string
}

// parseClass reads the faults of a class, one a line.
func parseClass(parameters map[string]string) ([]fault.Rule, error) {
	var rules []fault.Rule
	for line := range strings.Lines(parameters[array.FaultParameter]) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		r, err := fault.Parse(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", array.FaultParameter, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// breakClass adds the faults of a class when the name of one of its volumes is
// first seen, tells them the volume's id when it has one, and removes them with
// the volume, or when there will be none. It is a step around the call.
func (e *Emulator) breakClass(ctx context.Context, c *rpc.Call) error {
	switch r := c.Request.(type) {
	case *csi.CreateVolumeRequest:
		if r.GetParameters()[array.FaultParameter] != "" {
			return e.createBroken(ctx, c, r)
		}
	case *csi.DeleteVolumeRequest:
		if e.array == nil {
			break
		}
		v, err := e.array.Volume(r.GetVolumeId())
		if err != nil {
			break // there is none
		}
		if err := c.Next(ctx); err != nil {
			return err
		}
		e.dropClass(ctx, v.Name)
		return nil
	}
	return c.Next(ctx)
}

func (e *Emulator) createBroken(ctx context.Context, c *rpc.Call, r *csi.CreateVolumeRequest) error {
	rules, err := parseClass(r.GetParameters())
	if err == nil {
		err = e.addClass(r.GetName(), rules)
	}
	if err != nil {
		return rpc.Status(err)
	}
	err = c.Next(ctx)
	if reply, ok := c.Reply.(*csi.CreateVolumeResponse); ok && reply.GetVolume() != nil {
		// It is there even if the reply gets lost.
		e.faults.Identify(r.GetName(), reply.GetVolume().GetVolumeId())
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound, codes.AlreadyExists:
		// Such an answer does not change when the call is repeated.
		if !e.exists(r.GetName()) {
			e.dropClass(ctx, r.GetName())
		}
	}
	return err
}

func (e *Emulator) exists(name string) bool {
	return e.array != nil && e.array.Named(name)
}

// addClass adds rules for the volume with a name, unless it has them.
func (e *Emulator) addClass(name string, rules []fault.Rule) error {
	e.classFaults.mu.Lock()
	defer e.classFaults.mu.Unlock()
	if _, known := e.classFaults.byName[name]; known {
		return nil
	}
	if e.classFaults.byName == nil {
		e.classFaults.byName = map[string][]string{}
	}
	for _, r := range rules {
		id, err := e.faults.Add(r.Confine(name))
		if err != nil {
			return err
		}
		e.classFaults.byName[name] = append(e.classFaults.byName[name], id)
	}
	return nil
}

// dropClass removes the faults of a volume that is gone.
func (e *Emulator) dropClass(ctx context.Context, name string) {
	e.classFaults.mu.Lock()
	ids := e.classFaults.byName[name]
	delete(e.classFaults.byName, name)
	e.classFaults.mu.Unlock()
	for _, id := range ids {
		if err := e.RemoveFault(ctx, id); err != nil {
			e.log.WarnContext(ctx, "remove the fault of a deleted volume", "fault", id, "error", err)
		}
	}
}

// recallClasses adds the faults of the classes of volumes that were there before
// this process.
func (e *Emulator) recallClasses(ctx context.Context) error {
	for _, v := range e.array.Volumes() {
		rules, err := parseClass(v.Parameters)
		if err != nil || len(rules) == 0 {
			continue // it was checked when the volume was made
		}
		if err := e.addClass(v.Name, rules); err != nil {
			return err
		}
		e.faults.Identify(v.Name, v.ID)
		if err := e.breakAll(ctx, []string{v.ID}); err != nil {
			e.log.WarnContext(ctx, "a volume does not suffer from the faults of its class", "volume", v.ID, "error", err)
		}
	}
	return nil
}
