package metastore

import (
	"context"
	"log/slog"
	"time"

	"github.com/narad-mq/narad/internal/clock"
)

// Expiry is looked at when the store opens and every hour; an expired certificate
// says so every day (spec/cluster-and-network section 9.1).
const (
	certCheckEvery   = time.Hour
	certExpiredEvery = 24 * time.Hour
	day              = 24 * time.Hour
)

// The conditions of /readyz that degrade a node without making it not ready.
const (
	DegradedCertificate = "raft_tls_certificate_expired"
	DegradedCA          = "raft_tls_ca_expired" // every CA of the bundle
)

// certLine is one line about a certificate.
type certLine struct {
	level slog.Level
	text  string
}

// certWatch follows one certificate to its end. Not for concurrent use.
type certWatch struct {
	kind     string // "leaf" or "ca"
	name     string // as in log lines
	notAfter time.Time
	stage    int       // how many of certStages have been said
	said     time.Time // when it was last said that it has expired
}

// certStages are the warnings before the end, each given once.
var certStages = [...]struct {
	before time.Duration
	certLine
}{
	{30 * day, certLine{slog.LevelWarn, " expires in less than 30 days"}},
	{7 * day, certLine{slog.LevelWarn, " expires in less than 7 days"}},
	{day, certLine{slog.LevelError, " expires in less than a day"}},
}

// due is what to say now, if anything: the latest stage alone when several passed.
func (w *certWatch) due(now time.Time) (certLine, bool) {
	left := w.notAfter.Sub(now)
	if left < 0 {
		if !w.said.IsZero() && now.Sub(w.said) < certExpiredEvery {
			return certLine{}, false
		}
		w.said, w.stage = now, len(certStages)
		return certLine{slog.LevelError, w.name + " has expired"}, true
	}
	reached := 0
	for reached < len(certStages) && left < certStages[reached].before {
		reached++
	}
	if reached <= w.stage {
		return certLine{}, false
	}
	w.stage = reached
	last := certStages[reached-1]
	return certLine{last.level, w.name + last.text}, true
}

func (w *certWatch) check(now time.Time, log *slog.Logger) {
	line, due := w.due(now)
	if !due {
		return
	}
	attrs := []slog.Attr{slog.String("kind", w.kind), slog.Time("not_after", w.notAfter)}
	if now.After(w.notAfter) {
		attrs = append(attrs, slog.Duration("expired_for", now.Sub(w.notAfter)))
	}
	log.LogAttrs(context.Background(), line.level, line.text, attrs...)
}

// watchCertificates says what certificates are in use, and then follows them until
// quit closes.
func (t *raftTLS) watchCertificates(clk clock.Clock, log *slog.Logger, quit <-chan struct{}) {
	now := clk.Now()
	ca, _ := t.earliestCA(now)
	log.Info("raft TLS certificate in use", "not_before", t.leaf.NotBefore, "not_after", t.leaf.NotAfter, "ca_not_after", ca.NotAfter)
	if now.Before(t.leaf.NotBefore) {
		log.Error("raft TLS certificate is not valid yet", "kind", "leaf", "not_before", t.leaf.NotBefore)
	}
	if now.Before(ca.NotBefore) {
		log.Error("raft TLS CA certificate is not valid yet", "kind", "ca", "not_before", ca.NotBefore)
	}
	watches := []*certWatch{
		{kind: "leaf", name: "raft TLS certificate", notAfter: t.leaf.NotAfter},
		{kind: "ca", name: "raft TLS CA certificate", notAfter: ca.NotAfter},
	}
	timer := clk.NewTimer(certCheckEvery)
	defer timer.Stop()
	for {
		for _, w := range watches {
			w.check(clk.Now(), log)
		}
		select {
		case <-timer.C():
			timer.Reset(certCheckEvery)
		case <-quit:
			return
		}
	}
}

// Degraded is what is wrong with this node that does not make it not ready: expired
// Raft TLS, which keeps working until its connections break.
func (s *Store) Degraded() (conditions []string) {
	t := s.stream.tls
	if t == nil {
		return nil
	}
	now := s.clock.Now()
	if now.After(t.leaf.NotAfter) {
		conditions = append(conditions, DegradedCertificate)
	}
	if _, expired := t.earliestCA(now); expired {
		conditions = append(conditions, DegradedCA)
	}
	return conditions
}
