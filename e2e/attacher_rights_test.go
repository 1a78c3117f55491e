package e2e_test

import (
	"testing"

	rbac "k8s.io/api/rbac/v1"
)

// The manifests of the attacher are about this driver and this account.
const (
	rightsDriver  = "loop.csiemu.dev"
	rightsAccount = "system:serviceaccount:" + rightsNamespace + ":csiemu-attacher"
)

// unused are the rights of the manifests that were not needed. Lists are for API
// servers that cannot begin a watch with what there is.
func unused(t *testing.T, path string, used map[string]bool) (all []string) {
	t.Helper()
	for _, object := range manifests(t, path) {
		var rules []rbac.PolicyRule
		switch o := object.(type) {
		case *rbac.ClusterRole:
			rules = o.Rules
		case *rbac.Role:
			rules = o.Rules
		}
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if right := verb + " " + resource; verb != "list" && !used[right] {
						all = append(all, right)
					}
				}
			}
		}
	}
	return all
}
