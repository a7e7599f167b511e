// Package crash drives the real binary through crashes, damage and full disks, and
// judges what it did by what its clients were told (tests/ledger).
package crash
