// An addon's own controller, as authors write it with OCM's addon-framework v1.3, under two names: peer-signer approves and
// signs as they do without addon-signer, and is measured side by side with ours; framework-addon-v1beta1 leaves both to others.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"open-cluster-management.io/addon-framework/pkg/addonmanager"
	"open-cluster-management.io/addon-framework/pkg/agent"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1beta1 "open-cluster-management.io/api/addon/v1beta1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

// options are the command line.
type options struct {
	kubeconfig, addon, agent, signer, caCert, caKey string
	registers                                       string
	duration                                        time.Duration
	qps                                             float64
	burst                                           int
}

func parseOptions() options {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the hub")
	flag.StringVar(&o.addon, "addon", "telemetry", "name of the addon")
	flag.StringVar(&o.agent, "agent", "telemetry", "agent segment of the user name that is approved")
	flag.StringVar(&o.signer, "signer", "example.com/telemetry", "signer name")
	flag.StringVar(&o.registers, "registers", "nothing", "of framework-addon-v1beta1: nothing, kube-client, or the name of a signer")
	flag.StringVar(&o.caCert, "ca-cert", "", "PEM file of the CA certificate")
	flag.StringVar(&o.caKey, "ca-key", "", "PEM file of the CA key (RSA PKCS#1, the only kind it reads)")
	flag.DurationVar(&o.duration, "duration", 24*time.Hour, "life of a certificate")
	flag.Float64Var(&o.qps, "qps", 0, "requests per second of its client; 0 leaves client-go's default")
	flag.IntVar(&o.burst, "burst", 0, "burst of its client; 0 leaves client-go's default")
	flag.Parse()
	return o
}

// addon is an addon that deploys nothing and only registers its custom signer.
type addon struct{ options agent.AgentAddonOptions }

func (a *addon) Manifests(context.Context, *clusterv1.ManagedCluster, *addonv1beta1.ManagedClusterAddOn) ([]runtime.Object, error) {
	return nil, nil
}

func (a *addon) GetAgentAddonOptions() agent.AgentAddonOptions { return a.options }

// registrations names the custom signer with OCM's default user and groups.
func registrations(o options) agent.RegistrationConfigurationsFunc {
	return func(_ context.Context, cluster *clusterv1.ManagedCluster, _ *addonv1beta1.ManagedClusterAddOn) ([]agent.RegistrationConfig, error) {
		return []agent.RegistrationConfig{&agent.CustomSignerRegistration{
			SignerName: o.signer,
			User:       agent.DefaultUser(cluster.Name, o.addon, o.agent),
			Groups:     agent.DefaultGroups(cluster.Name, o.addon),
		}}, nil
	}
}

// signing is the peer that is measured: it approves and signs by itself.
func signing(o options) (*agent.RegistrationOption, error) {
	caCert, err := os.ReadFile(o.caCert)
	if err != nil {
		return nil, err
	}
	caKey, err := os.ReadFile(o.caKey)
	if err != nil {
		return nil, err
	}
	return &agent.RegistrationOption{
		Configurations:  registrations(o),
		CSRApproveCheck: utils.DefaultCSRApprover(o.agent),
		CSRSign:         utils.DefaultSignerWithExpiry(caKey, caCert, o.duration),
	}, nil
}

// registering only says which registrations its agent has: nothing, its access to the kube-apiserver, or a signer.
func registering(o options) *agent.RegistrationOption {
	switch o.registers {
	case "nothing":
		return nil
	case "kube-client":
		return &agent.RegistrationOption{Configurations: kubeClient(o)}
	default:
		o.signer, o.agent = o.registers, "of-the-framework"
		return &agent.RegistrationOption{Configurations: registrations(o)}
	}
}

// kubeClient names the registration that nearly every addon has.
func kubeClient(o options) agent.RegistrationConfigurationsFunc {
	return func(_ context.Context, cluster *clusterv1.ManagedCluster, _ *addonv1beta1.ManagedClusterAddOn) ([]agent.RegistrationConfig, error) {
		return []agent.RegistrationConfig{&agent.KubeClientRegistration{
			User:   agent.DefaultUser(cluster.Name, o.addon, o.addon),
			Groups: agent.DefaultGroups(cluster.Name, o.addon),
		}}, nil
	}
}

func run(o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	registration := registering(o)
	if filepath.Base(os.Args[0]) == "peer-signer" {
		if registration, err = signing(o); err != nil {
			return err
		}
	}
	manager, err := addonmanager.New(config)
	if err != nil {
		return err
	}
	err = manager.AddAgent(&addon{agent.AgentAddonOptions{AddonName: o.addon, Registration: registration}})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := manager.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func main() {
	if err := run(parseOptions()); err != nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", err)
		os.Exit(1)
	}
}
