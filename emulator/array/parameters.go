package array

import (
	"errors"
	"slices"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/internal/nearest"
)

// FaultParameter is the StorageClass parameter with faults for the volumes of the
// class, one a line in the form of fault.Parse. The emulator reads it.
const FaultParameter = "fault"

// ownParameters are those of a class that no backend gets.
var ownParameters = []string{
	PoolParameter, FaultParameter, access.SecretsForParameter, access.SecretKeyParameter, access.SecretDigestParameter,
}

// splitParameters takes what the array keeps for itself out of the parameters of
// a class: the capacity pool, the demand for secrets and the faults.
func (a *Array) splitParameters(parameters map[string]string) (pool string, demand access.Demand, rest map[string]string, err error) {
	demand, rest, err = access.TakeDemand(parameters)
	if err != nil {
		return "", access.Demand{}, nil, err
	}
	delete(rest, FaultParameter)
	pool, rest, err = a.pools.choose(rest)
	return pool, demand, rest, err
}

// layout has the backend plan a volume. Where it does not know a parameter, the
// error names the array's own ones too.
func (a *Array) layout(r backends.Request) (backends.Layout, error) {
	l, err := a.backend.Plan(r)
	if unknown, ok := errors.AsType[*backends.UnknownParameterError](err); ok {
		known := slices.Sorted(slices.Values(append(unknown.Known, ownParameters...)))
		return backends.Layout{}, &backends.UnknownParameterError{Key: unknown.Key, Known: known, Near: nearest.Word(unknown.Key, known)}
	}
	return l, err
}
