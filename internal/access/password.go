package access

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/crypto/bcrypt"

	"github.com/narad-mq/narad/internal/model"
)

// Hashing (spec/http-api AUTH-4, AUTH-7).
const (
	DefaultCost  = 10 // bcrypt cost of new hashes
	costMax      = 14 // of hashes accepted from another node: about a second of one core
	hashBytes    = 60
	hashingSlots = 2
)

// Matches reports whether the hash is one of the password; an error says that the
// hash is none at all.
func Matches(hash, password string) (bool, error) {
	err := compare([]byte(hash), []byte(password))
	if errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		return false, nil
	}
	return err == nil, err
}

// compare refuses a password bcrypt would cut before it compares.
func compare(hash, password []byte) error {
	if len(password) > PasswordMax {
		return bcrypt.ErrMismatchedHashAndPassword
	}
	return bcrypt.CompareHashAndPassword(hash, password)
}

// ValidateHash accepts a bcrypt hash of a cost that verification can bear.
func ValidateHash(hash string) error {
	cost, err := bcrypt.Cost([]byte(hash))
	if err != nil || len(hash) != hashBytes {
		return invalid("password hash is not a bcrypt hash of %d characters", hashBytes)
	}
	if cost > costMax {
		return invalid("password hash of cost %d, at most %d", cost, costMax)
	}
	return nil
}

// Hash hashes a valid password for the user store. At most two hash at once; the
// others wait, or leave with ctx. Its slots are not those of verification.
func (a *Authenticator) Hash(ctx context.Context, password string) (string, error) {
	select {
	case a.hashing <- struct{}{}:
		defer func() { <-a.hashing }()
	case <-ctx.Done():
		return "", fmt.Errorf("wait to hash a password: %w", ctx.Err())
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), a.cost)
	if err != nil {
		return "", fmt.Errorf("%w: %w", model.ErrInvalid, err)
	}
	return string(hash), nil
}
