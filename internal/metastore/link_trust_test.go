package metastore

import (
	"context"
	"testing"
)

// The leader's word on a link: Live for its epoch alone, Gone for every other question it
// can answer, Unknown when it cannot be asked.
func TestConfirmLink(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, name := range []string{"p", "c", "other"} {
		mustPropose(t, s, create(name))
	}
	mustPropose(t, s, AttachChild{Parent: "p", Child: "c", Epoch: "67953471cc57a32a"})
	ask := func(want Confirmation, parent, child, epoch string) {
		t.Helper()
		if got, err := s.ConfirmLink(context.Background(), parent, child, epoch); got != want || err != nil {
			t.Errorf("%s under %s by %q: %s, %v, want %s", child, parent, epoch, got, err, want)
		}
	}
	ask(Live, "p", "c", "67953471cc57a32a")
	ask(Live, "p", "c", "")
	ask(Gone, "p", "c", "0000000000000000")
	ask(Gone, "other", "c", "67953471cc57a32a")
	ask(Gone, "p", "other", "")
	ask(Gone, "p", "nobody", "")
	mustPropose(t, s, DetachChild{Parent: "p", Child: "c"})
	ask(Gone, "p", "c", "67953471cc57a32a")
	ask(Gone, "p", "c", "")
	must(t, s.Close())
	if got, err := s.ConfirmLink(context.Background(), "p", "c", ""); got != Unknown || err == nil {
		t.Errorf("without a leader: %s, %v", got, err)
	}
}
