package control

import (
	"crypto/rand"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// admin is the user with every right.
const admin = "admin"

// kubeconfig is the path of a user's configuration.
func kubeconfig(dir, user string) string { return filepath.Join(dir, user+".kubeconfig") }

// KubeconfigOf is the path of the configuration of a node, with the rights of its
// kubelet.
func (p *Plane) KubeconfigOf(node string) string { return kubeconfig(p.dir, node) }

// writeUsers writes the file of all tokens, and the configurations of their users.
func (p *Plane) writeUsers(tokens string) error {
	f, err := os.OpenFile(tokens, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// The columns are token, user, its number and its groups.
	lines := [][]string{{rand.Text(), admin, admin, "system:masters"}}
	for _, node := range p.config.Nodes {
		lines = append(lines, []string{rand.Text(), "system:node:" + node, node, "system:nodes"})
	}
	if err := csv.NewWriter(f).WriteAll(lines); err != nil {
		return fmt.Errorf("write %s: %w", tokens, err)
	}
	for _, line := range lines {
		if err := p.writeKubeconfig(line[2], line[0]); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig writes the configuration of a user. The certificate need not
// exist yet: the API server makes it.
func (p *Plane) writeKubeconfig(user, token string) error {
	config := api.NewConfig()
	config.Clusters["e2e"] = &api.Cluster{Server: p.api.url, CertificateAuthority: p.api.certificate}
	config.AuthInfos[user] = &api.AuthInfo{Token: token}
	config.Contexts["e2e"] = &api.Context{Cluster: "e2e", AuthInfo: user}
	config.CurrentContext = "e2e"
	return clientcmd.WriteToFile(*config, kubeconfig(p.dir, user))
}
