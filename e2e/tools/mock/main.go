// Command mock is the CSI driver of Kubernetes' own storage tests, at the Unix
// socket that is its first argument, under the name that is its second. Its volumes
// are directories where they are published.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, os.Args)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mock:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: mock SOCKET NAME")
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", args[1])
	if err != nil {
		return err
	}
	driver := service.New(service.Config{DriverName: args[2], PermissiveTargetPath: true, AttachLimit: 5})
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, driver)
	csi.RegisterControllerServer(server, driver)
	csi.RegisterNodeServer(server, driver)
	context.AfterFunc(ctx, server.GracefulStop)
	return server.Serve(l)
}
