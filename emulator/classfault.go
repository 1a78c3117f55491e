package emulator

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"

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
	// followed are the ids of the volumes for which calls are broken.
	followed map[string]bool
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

// confine is a rule for one volume only.
func confine(r fault.Rule, field, value string) fault.Rule {
	r.Match.Fields = maps.Clone(r.Match.Fields)
	if r.Match.Fields == nil {
		r.Match.Fields = map[string]string{}
	}
	r.Match.Fields[field] = value
	return r
}

// injectClass adds the faults of a volume's class for the call that makes the
// volume, and for its bytes, when its name is first seen.
func (e *Emulator) injectClass(ctx context.Context, c *rpc.Call) error {
	create, ok := c.Request.(*csi.CreateVolumeRequest)
	if !ok || create.GetParameters()[array.FaultParameter] == "" {
		return c.Next(ctx)
	}
	rules, err := parseClass(create.GetParameters())
	if err != nil {
		return err
	}
	e.classFaults.mu.Lock()
	if _, known := e.classFaults.byName[create.GetName()]; !known {
		e.addClass(create.GetName(), rules, "name", create.GetName())
	}
	e.classFaults.mu.Unlock()
	return c.Next(ctx)
}

// addClass adds rules for one volume, under the lock.
func (e *Emulator) addClass(name string, rules []fault.Rule, field, value string) {
	if e.classFaults.byName == nil {
		e.classFaults.byName = map[string][]string{}
	}
	ids := e.classFaults.byName[name]
	for _, r := range rules {
		ids = append(ids, e.faults.Add(confine(r, field, value)))
	}
	e.classFaults.byName[name] = ids
}

// followClass adds the faults of a volume's class for the calls about it once it
// has an id, and removes them with the volume. It comes after the call.
func (e *Emulator) followClass(ctx context.Context, c *rpc.Call) error {
	deleted := ""
	if r, ok := c.Request.(*csi.DeleteVolumeRequest); ok && e.array != nil {
		if v, err := e.array.Volume(r.GetVolumeId()); err == nil {
			deleted = v.Name
		}
	}
	err := c.Next(ctx)
	if err != nil {
		return err
	}
	if deleted != "" {
		return e.dropClass(ctx, c.Request.(*csi.DeleteVolumeRequest).GetVolumeId(), deleted)
	}
	create, ok := c.Request.(*csi.CreateVolumeRequest)
	if !ok || create.GetParameters()[array.FaultParameter] == "" {
		return nil
	}
	rules, err := parseClass(create.GetParameters())
	if err != nil {
		return err
	}
	reply, _ := c.Reply.(*csi.CreateVolumeResponse)
	e.classFaults.mu.Lock()
	defer e.classFaults.mu.Unlock()
	if id := reply.GetVolume().GetVolumeId(); !e.classFaults.followed[id] {
		e.follow(id, create.GetName(), rules)
	}
	return nil
}

// follow adds rules about the calls for a volume that has an id, under the lock.
func (e *Emulator) follow(id, name string, rules []fault.Rule) {
	if e.classFaults.followed == nil {
		e.classFaults.followed = map[string]bool{}
	}
	e.classFaults.followed[id] = true
	for _, r := range rules {
		if !r.AboutBytes() {
			e.addClass(name, []fault.Rule{r}, "volume", id)
		}
	}
}

// dropClass removes the faults of a volume that is gone.
func (e *Emulator) dropClass(ctx context.Context, id, name string) error {
	e.classFaults.mu.Lock()
	ids := e.classFaults.byName[name]
	delete(e.classFaults.byName, name)
	delete(e.classFaults.followed, id)
	e.classFaults.mu.Unlock()
	for _, id := range ids {
		if err := e.RemoveFault(ctx, id); err != nil {
			e.log.WarnContext(ctx, "the fault of a deleted volume is gone already", "fault", id, "error", err)
		}
	}
	return nil
}

// recallClasses adds the faults of the classes of volumes that were there before
// this process.
func (e *Emulator) recallClasses(ctx context.Context) error {
	volumes, _, err := e.array.List("", 0)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		rules, err := parseClass(v.Parameters)
		if err != nil || len(rules) == 0 {
			continue // it was checked when the volume was made
		}
		e.classFaults.mu.Lock()
		for _, r := range rules {
			if r.AboutBytes() {
				e.addClass(v.Name, []fault.Rule{r}, "name", v.Name)
			}
		}
		e.follow(v.ID, v.Name, rules)
		e.classFaults.mu.Unlock()
		if err := e.breakVolume(ctx, v); err != nil {
			e.log.WarnContext(ctx, "a volume does not suffer from its faults", "volume", v.ID, "error", err)
		}
	}
	return nil
}
