//go:build !linux

package csitest_test

import "github.com/csiemu/csiemu/csitest"

func tiers() map[string][]csitest.Option { return map[string][]csitest.Option{"memory": nil} }

func isVictim() bool { return false }
func victim()        {}
