package metastore

// Domain is one part of the replicated state with a version of its own.
type Domain uint8

// The domains. A change of a topic's schema or placement moves its own domain and
// DomainTopics, because the topic's view changes with it.
const (
	DomainTopics      Domain = iota // views: records, placement, schema versions
	DomainAssignments               // owners and move targets
	DomainSchemas                   // schema histories
	DomainMembers                   // member records
	DomainUsers                     // users and grants
	DomainRemotes                   // remotes

	domainCount
)

// Version moves after every change of a domain is visible: what was read after
// loading a version is at least as new as it. One atomic load. Versions say nothing
// on another node, or after a restart.
func (s *Store) Version(d Domain) uint64 { return s.fsm.catalog.domains[d].Load() }

// TopicsVersion is Version of DomainTopics: while it stands, Topic answers as before.
func (s *Store) TopicsVersion() uint64 { return s.Version(DomainTopics) }
