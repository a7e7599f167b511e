package topics

import (
	"fmt"
	"math"

	"github.com/narad-mq/narad/internal/model"
)

// invalid is a refusal of the request's values (400).
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", model.ErrInvalid, fmt.Errorf(format, args...))
}

func orDefault[T int | int64](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

func checkRange[T int | int64](field string, v, low, high T) error {
	if v < low || v > high {
		return invalid("%s %d, want %d to %d", field, v, low, high)
	}
	return nil
}

// checkCap: caps are positive; the upper bound is what 32-bit builds can hold.
func checkCap(field string, v int) error { return checkRange(field, v, 1, math.MaxInt32) }

func checkRetention(ms int64) error {
	if ms == 0 {
		return nil
	}
	if ms < model.RetentionMSMin || ms > model.RetentionMSMax {
		return invalid("retention_ms %d, want 0 (forever) or %d to %d", ms, model.RetentionMSMin, model.RetentionMSMax)
	}
	return nil
}

// firstError returns the first error that is not nil: one refusal, one reason.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
