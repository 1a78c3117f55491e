package e2e_test

import (
	"bufio"
	"bytes"
	"context"
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

// newPlane starts a control plane without nodes, which ends with the test, and
// returns its directory, whose path leaves room for sockets.
func newPlane(ctx context.Context, t *testing.T) (*control.Plane, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-") // a path of t.TempDir is too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	plane, err := control.New(ctx, dir, control.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Close()) })
	return plane, dir
}

// rightsNamespace is that of the accounts in testdata/rbac.
const rightsNamespace = "csiemu"

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
