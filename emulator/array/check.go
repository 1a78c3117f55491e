package array

import "fmt"

// check says what is wrong with the record of an array.
func (i *identity) check(string) error {
	if i.ID == "" || i.Backend == "" {
		return fmt.Errorf("it names no array")
	}
	return nil
}

// check says what is wrong with the record of a volume.
func (v *Volume) check(id string) error {
	if len(v.Attachments) > 0 && v.Device == nil {
		return fmt.Errorf("it is attached to %q without a device", v.NodeIDs())
	}
	return checkObject(id, v.ID, v.Name, v.State, v.Layout.SizeBytes)
}

// check says what is wrong with the record of a snapshot.
func (s *Snapshot) check(id string) error {
	if s.ReservedBytes < 0 {
		return fmt.Errorf("it reserves %d bytes", s.ReservedBytes)
	}
	return checkObject(id, s.ID, s.Name, s.State, s.Layout.SizeBytes)
}

// check says what is wrong with the record of a group snapshot.
func (g *Group) check(id string) error {
	if len(g.SnapshotIDs) == 0 || len(g.SnapshotIDs) != len(g.SourceIDs) {
		return fmt.Errorf("it has %d snapshots of %d volumes", len(g.SnapshotIDs), len(g.SourceIDs))
	}
	const anySize = 1 // a group has none
	return checkObject(id, g.ID, g.Name, g.State, anySize)
}

func checkObject(place, id, name string, state State, sizeBytes int64) error {
	switch {
	case id != place:
		return fmt.Errorf("it says to be %q", id)
	case name == "":
		return fmt.Errorf("it has no name")
	case state != Creating && state != Ready && state != Deleting:
		return fmt.Errorf("its state %q is not known", state)
	case sizeBytes <= 0:
		return fmt.Errorf("its size of %d bytes is none", sizeBytes)
	}
	return nil
}

// check says what is wrong with the record of a node.
func (n *Node) check(id string) error {
	if nodeRecordID(n.ID) != id {
		return fmt.Errorf("it says to be node %q", n.ID)
	}
	return nil
}
