package array

// List returns a page of volumes and the token of the next page, if there is
// one. limit 0 means no limit. A token that is none of ours is
// backends.ErrAborted.
func (a *Array) List(token string, limit int) ([]*Volume, string, error) {
	return a.volumes.page(token, limit, func(*Volume) bool { return true })
}

// ListSnapshots returns a page of snapshots: all, those of a volume, or the one
// with an id. What does not exist is an empty list.
func (a *Array) ListSnapshots(token string, limit int, id, sourceID string) ([]*Snapshot, string, error) {
	if id != "" {
		s, err := a.Snapshot(id)
		if err != nil || (sourceID != "" && s.SourceID != sourceID) {
			return nil, "", nil
		}
		return []*Snapshot{s}, "", nil
	}
	return a.snapshots.page(token, limit, func(s *Snapshot) bool { return sourceID == "" || s.SourceID == sourceID })
}
