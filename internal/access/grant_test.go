package access

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/model"
)

func TestU2Usernames(t *testing.T) {
	for _, name := range []string{"a", "admin", "A.b_c-9", "...", ".hidden", strings.Repeat("x", 64)} {
		if err := ValidateUsername(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a b", "a:b", "a/b", "ä", "a\x00", "a*", strings.Repeat("x", 65)} {
		if err := ValidateUsername(name); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestU2U16PasswordLengthCountsBytes(t *testing.T) {
	for _, ok := range []string{"x", strings.Repeat("x", 72), strings.Repeat("ä", 36), ":", "\x00"} {
		if err := ValidatePassword("password", ok); err != nil {
			t.Errorf("%d bytes: %v", len(ok), err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("x", 73), strings.Repeat("ä", 37)} {
		err := ValidatePassword("new_password", bad)
		if !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), "new_password") {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
		if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the refusal tells the password: %v", err)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, p := range []string{"*", "orders", "orders-*", "A.b_c-9", strings.Repeat("p", 254) + "*"} {
		if err := ValidatePattern(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"", "**", "*a", "a*b", "a b", "a?", "ä*", "a/b", strings.Repeat("p", 256), strings.Repeat("p", 255) + "*"} {
		if err := ValidatePattern(p); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%q: got %v", p, err)
		}
	}
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"orders-*", "orders-", true}, {"orders-*", "orders-x", true}, {"orders-*", "orders", false}, {"orders-*", "Orders-x", false},
		{"orders", "orders", true}, {"orders", "orders-x", false}, {"orders", "ORDERS", false}, {"*", "anything", true},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.name, got)
		}
	}
}

func TestU2Grants(t *testing.T) {
	valid := []model.Grant{
		{Action: "produce", Patterns: []string{"a", "b-*"}}, {Action: "consume", Patterns: []string{"*"}},
		{Action: "create", Patterns: []string{"x*"}}, {Action: "admin"}, {Action: "admin", Patterns: []string{}}, {Action: "produce", Patterns: []string{"a"}},
	}
	if err := ValidateGrants(valid); err != nil {
		t.Fatal(err)
	}
	if err := ValidateGrants(nil); err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]model.Grant{
		"unknown action":   {Action: "delete", Patterns: []string{"a"}},
		"case of action":   {Action: "Produce", Patterns: []string{"a"}},
		"no action":        {Patterns: []string{"a"}},
		"missing patterns": {Action: "consume"},
		"extra patterns":   {Action: "admin", Patterns: []string{"*"}},
		"bad pattern":      {Action: "create", Patterns: []string{"ok", "a*b"}},
	} {
		if err := ValidateGrants(append(valid[:1:1], g)); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// name draws something a topic or pattern may be called, from a small alphabet so
// that prefixes meet.
func name(t *rapid.T, label string) string {
	return rapid.StringMatching(`[ab.]{1,5}`).Draw(t, label)
}

func TestPatternProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, p := name(t, "name"), name(t, "prefix")
		if Match(p, n) != (p == n) {
			t.Fatalf("exact pattern %q on %q", p, n)
		}
		// The slow definition: some prefix of the name is the pattern's.
		covered := false
		for i := range len(n) + 1 {
			covered = covered || n[:i] == p
		}
		if Match(p+"*", n) != covered {
			t.Fatalf("prefix pattern %q* on %q, want %v", p, n, covered)
		}
		if !Match("*", n) {
			t.Fatalf("* refuses %q", n)
		}
		// Allows is any pattern of the action, and no other action's.
		c := NewCaller(model.User{Username: "u", Grants: []model.Grant{{Action: model.ActionProduce, Patterns: []string{p, p + "x*"}}}})
		if c.Allows(model.ActionProduce, n) != (Match(p, n) || Match(p+"x*", n)) || c.Allows(model.ActionConsume, n) || c.Allows(model.ActionAdmin, n) {
			t.Fatalf("caller with %q on %q", p, n)
		}
	})
}

func FuzzPattern(f *testing.F) {
	f.Add("*", "orders")
	f.Add("orders-*", "orders-1")
	f.Add("a**", "a*")
	f.Add("\xff", "")
	f.Fuzz(func(t *testing.T, p, n string) {
		if ValidatePattern(p) != nil {
			return
		}
		if len(p) > PatternMax || strings.Count(p, "*") > 1 {
			t.Fatalf("accepted %q", p)
		}
		prefix, wild := strings.CutSuffix(p, "*")
		want := n == p
		if wild {
			want = len(n) >= len(prefix) && n[:len(prefix)] == prefix
		}
		if Match(p, n) != want {
			t.Fatalf("%q on %q: want %v", p, n, want)
		}
	})
}
