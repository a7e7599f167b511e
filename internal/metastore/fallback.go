package metastore

// What each entry of release 3.1 falls back to while a member runs 3.0. Type 30 has
// nothing to fall back to: the row stays until every member can prune it.

func (c CreateLinkedTopic) base() []Command {
	steps := []Command{CreateTopic{Topic: c.Topic, Owners: c.Owners}}
	if len(c.Schema) > 0 {
		steps = append(steps, PutSchema{Topic: c.Topic.Name, Version: 1, Schema: c.Schema})
	}
	if p := c.Parent; p != nil {
		steps = append(steps, AttachChild{Parent: p.Name, Child: c.Topic.Name, Epoch: p.Epoch, DelayMS: p.DelayMS, Offsets: p.Offsets})
	}
	return steps
}

func (c AlterTopic) base() []Command { return []Command{c.update()} }

func (c RemoveTopic) base() []Command { return []Command{DeleteTopic(c)} }

func (c PutSchemaVersion) base() []Command {
	return []Command{PutSchema{Topic: c.Topic, Version: c.Version, Schema: c.Schema}}
}

func (c LinkChild) base() []Command { return []Command{c.attach()} }

func (c UnlinkChild) base() []Command {
	return []Command{DetachChild{Parent: c.Parent, Child: c.Child}}
}

func (c InsertPlacement) base() []Command { return []Command{PlacePartitions(c)} }

func (c MarkSilent) base() []Command { return []Command{MarkDead{ID: c.ID}} }

func (c RemoveUser) base() []Command { return []Command{DeleteUser(c)} }
