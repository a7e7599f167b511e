package metastore

import (
	"bytes"
	"strings"

	"github.com/narad-mq/narad/internal/model"
)

// Keys of the remotes bucket.
const remotePrefix = "remote/"

var keyRemoteKeys = []byte("meta")

func remoteKey(name string) []byte { return []byte(remotePrefix + name) }

// CreateRemote (type 35) stores a remote with its sealed credential. The cluster's
// first one also stores the salt its keys are derived with; a create that carries
// another is refused with ErrConflict, as is one past the limit of remotes. Refused
// also with ErrRemoteExists and ErrInvalid.
type CreateRemote struct {
	Remote model.Remote `json:"remote"` // versions are ignored: both start at 1
	Salt   []byte       `json:"salt,omitempty"`
}

// Type implements Command.
func (CreateRemote) Type() EntryType { return TypeCreateRemote }

func (c CreateRemote) apply(t *txn) error {
	rec := c.Remote
	if _, err := model.ParseIncarnation(rec.ID); err != nil || !remoteName(rec.Name) || rec.Sealed.KeyVersion == "" {
		return refusef(model.ErrInvalid, "remote %q with id %q, sealed by key %q", rec.Name, rec.ID, rec.Sealed.KeyVersion)
	}
	if t.tx.Bucket(bucketRemotes).Get(remoteKey(rec.Name)) != nil {
		return refuse(model.ErrRemoteExists)
	}
	if n := t.countRemotes(); n >= model.RemotesMax {
		return refusef(model.ErrConflict, "the cluster has %d remotes, at most %d", n, model.RemotesMax)
	}
	keys, err := t.remoteKeys()
	switch {
	case err != nil:
		return err
	case keys.Salt == nil && len(c.Salt) != model.RemoteSaltBytes:
		return refusef(model.ErrInvalid, "salt of %d bytes, want %d", len(c.Salt), model.RemoteSaltBytes)
	case keys.Salt == nil:
		keys.Salt = c.Salt
	case len(c.Salt) > 0 && !bytes.Equal(c.Salt, keys.Salt):
		return refusef(model.ErrConflict, "another first remote was created at the same time; try again")
	}
	rec.CredentialVersion, rec.Revision = 1, 1
	if err := t.countSeal(keys, rec.Sealed.KeyVersion, rec.PasswordSetAtMS); err != nil {
		return err
	}
	return t.putRemote(rec)
}

// remoteName is the rule of spec/remote-replication B3: a letter, then up to 62
// letters, digits and hyphens, all lower case.
func remoteName(name string) bool {
	if name == "" || len(name) > 63 || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (t *txn) countRemotes() (n int) {
	c := t.tx.Bucket(bucketRemotes).Cursor()
	for k, _ := c.Seek([]byte(remotePrefix)); bytes.HasPrefix(k, []byte(remotePrefix)); k, _ = c.Next() {
		n++
	}
	return n
}

func (t *txn) remoteKeys() (model.RemoteKeys, error) {
	keys, _, err := getJSON[model.RemoteKeys](t.tx, bucketRemotes, keyRemoteKeys)
	return keys, err
}

// countSeal stores the keys with one more ciphertext sealed by a key.
func (t *txn) countSeal(keys model.RemoteKeys, version string, at int64) error {
	if keys.Keys == nil {
		keys.Keys = map[string]model.RemoteKey{}
	}
	k, known := keys.Keys[version]
	if !known {
		k.FirstSealedAtMS = at
	}
	k.Seals++
	keys.Keys[version] = k
	return t.put(bucketRemotes, keyRemoteKeys, keys)
}

func (t *txn) putRemote(rec model.Remote) error {
	t.moved[DomainRemotes] = true
	return t.put(bucketRemotes, remoteKey(rec.Name), rec)
}

// remote reads exactly this life of a remote, or refuses with ErrRemoteNotFound or
// ErrRemoteChanged.
func (t *txn) remote(name, id string) (model.Remote, error) {
	rec, ok, err := getJSON[model.Remote](t.tx, bucketRemotes, remoteKey(name))
	switch {
	case err != nil:
		return rec, err
	case !ok:
		return rec, refuse(model.ErrRemoteNotFound)
	case rec.ID != id:
		return rec, refuse(model.ErrRemoteChanged)
	}
	return rec, nil
}

// NewCredential is a ciphertext and what is told of its password.
type NewCredential struct {
	Sealed      model.Sealed `json:"sealed"`
	Fingerprint string       `json:"fingerprint"`
	At          int64        `json:"at"` // Unix milliseconds
	By          string       `json:"by,omitempty"`
}

// ChangeRemote (type 36) changes the fields that are set, of the remote with this id
// at this revision. URL, username and CA are what a ciphertext is bound to, so a
// change of them brings a new one. Reencrypt says that the ciphertext holds the same
// password: it is bound to the credential version instead of the revision, and
// changes nothing else. Refused with ErrRemoteNotFound, ErrRemoteChanged, ErrInvalid.
type ChangeRemote struct {
	Name              string              `json:"name"`
	ID                string              `json:"id"`
	Revision          int                 `json:"revision,omitempty"`           // of a change
	CredentialVersion int                 `json:"credential_version,omitempty"` // of a re-encrypt
	Reencrypt         bool                `json:"reencrypt,omitempty"`
	URL               *string             `json:"url,omitempty"`
	Username          *string             `json:"username,omitempty"`
	CAPEM             *string             `json:"ca_pem,omitempty"`
	Limits            *model.RemoteLimits `json:"limits,omitempty"`
	Credential        *NewCredential      `json:"credential,omitempty"`
}

// Type implements Command.
func (ChangeRemote) Type() EntryType { return TypeChangeRemote }

func (c ChangeRemote) apply(t *txn) error {
	rec, err := t.remote(c.Name, c.ID)
	if err != nil {
		return err
	}
	if err := c.checkAgainst(&rec); err != nil {
		return err
	}
	setIf(&rec.URL, c.URL)
	setIf(&rec.Username, c.Username)
	setIf(&rec.CAPEM, c.CAPEM)
	setIf(&rec.Limits, c.Limits)
	rec.Revision++
	if n := c.Credential; n != nil {
		rec.Sealed, rec.Fingerprint = n.Sealed, n.Fingerprint
		rec.CredentialVersion++
		if !c.Reencrypt {
			rec.PasswordSetAtMS, rec.PasswordSetBy = n.At, n.By
		}
		keys, err := t.remoteKeys()
		if err != nil {
			return err
		}
		if err := t.countSeal(keys, n.Sealed.KeyVersion, n.At); err != nil {
			return err
		}
	}
	return t.putRemote(rec)
}

// checkAgainst refuses a change of another state than the one on record.
func (c ChangeRemote) checkAgainst(rec *model.Remote) error {
	bound := c.URL != nil || c.Username != nil || c.CAPEM != nil
	switch {
	case c.Credential != nil && c.Credential.Sealed.KeyVersion == "":
		return refusef(model.ErrInvalid, "the new credential of remote %q names no key", c.Name)
	case c.Reencrypt && (c.Credential == nil || bound || c.Limits != nil):
		return refusef(model.ErrInvalid, "a re-encrypt of remote %q brings a credential and nothing else", c.Name)
	case c.Reencrypt && c.CredentialVersion != rec.CredentialVersion, !c.Reencrypt && c.Revision != rec.Revision:
		return refuse(model.ErrRemoteChanged)
	case bound && c.Credential == nil:
		return refusef(model.ErrInvalid, "url, username and ca_pem of remote %q change with the password only", c.Name)
	}
	return nil
}

// DeleteRemote (type 37) deletes a remote; while remote children name it only with
// Force. The salt and the keys stay. Refused with ErrRemoteNotFound,
// ErrRemoteChanged and ErrRemoteInUse.
type DeleteRemote struct {
	Name  string `json:"name"`
	ID    string `json:"id"`
	Force bool   `json:"force,omitempty"`
}

// Type implements Command.
func (DeleteRemote) Type() EntryType { return TypeDeleteRemote }

func (c DeleteRemote) apply(t *txn) error {
	if _, err := t.remote(c.Name, c.ID); err != nil {
		return err
	}
	if !c.Force {
		err := t.eachStub(func(stub *model.Topic) error {
			if stub.Remote.Name == c.Name {
				return refusef(model.ErrRemoteInUse, "%q sends through %q", stub.Name, c.Name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	t.moved[DomainRemotes] = true
	return t.remove(bucketRemotes, remoteKey(c.Name))
}
