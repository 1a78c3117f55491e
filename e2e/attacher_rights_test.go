package e2e_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csiemu/csiemu/e2e/control"
)

// The manifests of the attacher are about this driver, in this namespace.
const (
	rightsDriver    = "loop.csiemu.dev"
	rightsNamespace = "csiemu"
	rightsAccount   = "system:serviceaccount:" + rightsNamespace + ":csiemu-attacher"
)

// grant applies the manifests of rights to a control plane.
func grant(t *testing.T, client kubernetes.Interface, path string) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rightsNamespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	for _, object := range manifests(t, path) {
		var made error
		switch o := object.(type) {
		case *core.ServiceAccount:
			_, made = client.CoreV1().ServiceAccounts(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		case *rbac.ClusterRole:
			_, made = client.RbacV1().ClusterRoles().Create(t.Context(), o, metav1.CreateOptions{})
		case *rbac.ClusterRoleBinding:
			_, made = client.RbacV1().ClusterRoleBindings().Create(t.Context(), o, metav1.CreateOptions{})
		case *rbac.Role:
			_, made = client.RbacV1().Roles(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		case *rbac.RoleBinding:
			_, made = client.RbacV1().RoleBindings(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
		default:
			require.Failf(t, "unexpected object", "%s has a %T", path, object)
		}
		require.NoError(t, made, "%v", object)
	}
}

// manifests are the objects of a file.
func manifests(t *testing.T, path string) (all []runtime.Object) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		require.NoError(t, err, "%s: %s", path, document)
		all = append(all, object)
	}
}

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

// kubeconfigOf writes a configuration for a program: the address of a server, and
// whom it acts as; "" is the administrator.
func kubeconfigOf(t *testing.T, plane *control.Plane, server, as string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig)
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		if server != "" {
			cluster.Server, cluster.CertificateAuthority = server, ""
		}
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = as
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
