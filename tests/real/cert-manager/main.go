// Command cert-manager-controller is cert-manager's controller with only what signs CertificateRequests by issuers of
// the kinds CA, SelfSigned and Vault. cert-manager's own main is in a module that no Go module proxy serves; it differs
// in leader election and metrics, which tests do not need.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/cert-manager/cert-manager/pkg/controller"
	// Each of these makes its controllers or its kind of issuer known.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/vault"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/vault"
)

func run(ctx context.Context, options controller.ContextOptions, without []string) error {
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}
	known := controller.Known()
	for _, name := range without {
		delete(known, name)
	}
	ended := make(chan error)
	for name, construct := range known {
		one, err := construct(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		go func() { ended <- one.Run(1, ctx) }()
	}
	// All controllers share the informers of any context.
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return <-ended
}

func main() {
	var options controller.ContextOptions
	flag.StringVar(&options.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster")
	flag.StringVar(&options.ClusterResourceNamespace, "cluster-resource-namespace", "cert-manager",
		"namespace of the Secrets of ClusterIssuers")
	without := flag.String("without", "", "controllers that do not run, with commas between them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, options, strings.Split(*without, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager-controller:", err)
		os.Exit(1)
	}
}
