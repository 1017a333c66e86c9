package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"open-cluster-management.io/addon-framework/pkg/addonmanager"
	"open-cluster-management.io/addon-framework/pkg/agent"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

// frameworkAddon deploys nothing, approves nothing and signs nothing: it only says which registrations its agent has.
type frameworkAddon struct{ options agent.AgentAddonOptions }

func (a *frameworkAddon) Manifests(*clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn) ([]runtime.Object, error) {
	return nil, nil
}

func (a *frameworkAddon) GetAgentAddonOptions() agent.AgentAddonOptions { return a.options }

// frameworkRegistration is what `--registers` names: nothing, the agent's access to the kube-apiserver, or a signer.
func frameworkRegistration(addon, registers string) *agent.RegistrationOption {
	switch registers {
	case "nothing":
		return nil
	case "kube-client":
		return &agent.RegistrationOption{CSRConfigurations: agent.KubeClientSignerConfigurations(addon, addon)}
	default:
		return &agent.RegistrationOption{CSRConfigurations: func(
			cluster *clusterv1.ManagedCluster, _ *addonv1alpha1.ManagedClusterAddOn,
		) ([]addonv1alpha1.RegistrationConfig, error) {
			return []addonv1alpha1.RegistrationConfig{{
				SignerName: registers,
				Subject: addonv1alpha1.Subject{
					User:   agent.DefaultUser(cluster.Name, addon, "of-the-framework"),
					Groups: agent.DefaultGroups(cluster.Name, addon),
				},
			}}, nil
		}}
	}
}

func newFrameworkAddon() *cobra.Command {
	var kubeconfig, addon, registers string
	command := &cobra.Command{
		Use: "framework-addon-v1alpha1",
		RunE: func(*cobra.Command, []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			manager, err := addonmanager.New(config)
			if err != nil {
				return err
			}
			options := agent.AgentAddonOptions{AddonName: addon, Registration: frameworkRegistration(addon, registers)}
			if err := manager.AddAgent(&frameworkAddon{options}); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			defer stop()
			if err := manager.Start(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the hub")
	flags.StringVar(&addon, "addon", "", "name of the addon")
	flags.StringVar(&registers, "registers", "nothing", "nothing, kube-client, or the name of a signer")
	return command
}
