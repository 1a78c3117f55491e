package array

import "context"

// Authorize returns backends.ErrUnauthenticated where the class of a volume
// demands secrets for a call and those that came, of which it gets the digests
// (access.Digests), are others. A volume that does not exist demands nothing:
// the call itself says so.
func (a *Array) Authorize(_ context.Context, volumeID, method string, digests map[string]string) error {
	if v, ok := a.volumes.get(volumeID); ok {
		return v.Demand.Check(method, digests)
	}
	return nil
}

// AuthorizeSnapshot is Authorize for a snapshot, which demands what its source
// demanded.
func (a *Array) AuthorizeSnapshot(snapshotID, method string, digests map[string]string) error {
	if s, ok := a.snapshots.get(snapshotID); ok {
		return s.Demand.Check(method, digests)
	}
	return nil
}

// AuthorizeGroup is Authorize for all snapshots of a group.
func (a *Array) AuthorizeGroup(groupID, method string, digests map[string]string) error {
	g, ok := a.groups.get(groupID)
	if !ok {
		return nil
	}
	for _, id := range g.SnapshotIDs {
		if err := a.AuthorizeSnapshot(id, method, digests); err != nil {
			return err
		}
	}
	return nil
}
