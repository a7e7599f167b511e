package access

import (
	"fmt"
	"strings"

	"github.com/narad-mq/narad/internal/model"
)

// Limits of users and patterns (spec/http-api sections 4 and 11), in bytes.
const (
	UsernameMax = 64
	PasswordMax = 72 // what bcrypt reads
	PatternMax  = 255
)

// invalid is a refusal of the request's values (400).
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", model.ErrInvalid, fmt.Errorf(format, args...))
}

// nameByte reports whether c may be in a username, topic name or pattern.
func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// ValidateUsername accepts 1 to 64 of A-Z a-z 0-9 . _ - but not "." and "..".
func ValidateUsername(name string) error {
	if len(name) < 1 || len(name) > UsernameMax {
		return invalid("username of %d characters, want 1 to %d", len(name), UsernameMax)
	}
	if name == "." || name == ".." {
		return invalid("username %q is reserved", name)
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return invalid("username %q: character %d is not one of A-Z a-z 0-9 . _ -", name, i)
		}
	}
	return nil
}

// ValidatePassword accepts 1 to 72 bytes. what names the field in the text, which
// never holds the password.
func ValidatePassword(what, password string) error {
	if len(password) < 1 || len(password) > PasswordMax {
		return invalid("%s of %d bytes, want 1 to %d", what, len(password), PasswordMax)
	}
	return nil
}

// ValidatePattern accepts a topic name or a prefix of one that ends in "*": 1 to
// 255 of A-Z a-z 0-9 . _ - with "*" as the last character only.
func ValidatePattern(p string) error {
	if len(p) < 1 || len(p) > PatternMax {
		return invalid("pattern of %d characters, want 1 to %d", len(p), PatternMax)
	}
	for i := range len(p) {
		switch {
		case nameByte(p[i]), p[i] == '*' && i == len(p)-1:
		case p[i] == '*':
			return invalid("pattern %q: * is allowed as the last character only", p)
		default:
			return invalid("pattern %q: character %d is not one of A-Z a-z 0-9 . _ - *", p, i)
		}
	}
	return nil
}

// Match reports whether a valid pattern covers a topic name: the name itself, or
// every name its prefix begins, the bare prefix included. Case counts.
func Match(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// ValidateGrants accepts grants of known actions whose patterns are valid: at least
// one for produce, consume and create, none for admin.
func ValidateGrants(grants []model.Grant) error {
	for i, g := range grants {
		if err := validateGrant(g); err != nil {
			return fmt.Errorf("%w (grant %d)", err, i)
		}
	}
	return nil
}

func validateGrant(g model.Grant) error {
	switch g.Action {
	case model.ActionAdmin:
		if len(g.Patterns) > 0 {
			return invalid("action admin takes no patterns")
		}
		return nil
	case model.ActionProduce, model.ActionConsume, model.ActionCreate:
		if len(g.Patterns) == 0 {
			return invalid("action %s needs at least one pattern", g.Action)
		}
	default:
		return invalid("action %q, want produce, consume, create or admin", g.Action)
	}
	for _, p := range g.Patterns {
		if err := ValidatePattern(p); err != nil {
			return err
		}
	}
	return nil
}

// givesAdmin reports whether grants hold the action admin.
func givesAdmin(grants []model.Grant) bool {
	for _, g := range grants {
		if g.Action == model.ActionAdmin {
			return true
		}
	}
	return false
}
