// Programs of Open Cluster Management, unmodified, in one binary that is the one by whose name it is called:
//
//   - registration-agent joins a hub, and gets and renews the certificates that a ManagedClusterAddOn's registrations name;
//   - work-agent applies ManifestWorks to a managed cluster;
//   - addon-manager runs the addons that an AddOnTemplate describes;
//   - addon-webhook converts between the two versions of the addon API;
//   - registration-controller, placement-controller and work-controller are the rest of OCM's hub;
//   - framework-addon-v1alpha1 is an addon's own controller, as authors write it with addon-framework v1.2.
package main

import (
	goflag "flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	ocmfeature "open-cluster-management.io/api/feature"
	"open-cluster-management.io/ocm/pkg/cmd/hub"
	"open-cluster-management.io/ocm/pkg/cmd/spoke"
	"open-cluster-management.io/ocm/pkg/cmd/webhook"
	"open-cluster-management.io/ocm/pkg/features"
)

// command builds the one that was asked for: their constructors register feature gates globally, so that two would clash.
func command() (*cobra.Command, error) {
	switch name := filepath.Base(os.Args[0]); name {
	case "registration-agent":
		return spoke.NewRegistrationAgent(), nil
	case "work-agent":
		return spoke.NewWorkAgent(), nil
	case "addon-manager":
		return hub.NewAddonManager(), nil
	case "addon-webhook":
		return webhook.NewAddonWebhook(), nil
	case "registration-controller":
		return gated(hub.NewRegistrationController, ocmfeature.DefaultHubRegistrationFeatureGates)
	case "placement-controller":
		return hub.NewPlacementController(), nil
	case "work-controller":
		return gated(hub.NewWorkController, ocmfeature.DefaultHubWorkFeatureGates)
	case "framework-addon-v1alpha1":
		return newFrameworkAddon(), nil
	default:
		return nil, fmt.Errorf("%s is none of the programs in this binary", name)
	}
}

// gated declares the feature gates of a hub controller, as OCM's own mains do before they build its command.
func gated(build func() *cobra.Command, gates map[featuregate.Feature]featuregate.FeatureSpec) (*cobra.Command, error) {
	if err := features.HubMutableFeatureGate.Add(gates); err != nil {
		return nil, err
	}
	features.HubMutableFeatureGate.AddFlag(pflag.CommandLine)
	return build(), nil
}

func main() {
	pflag.CommandLine.SetNormalizeFunc(utilflag.WordSepNormalizeFunc)
	pflag.CommandLine.AddGoFlagSet(goflag.CommandLine)
	logs.AddFlags(pflag.CommandLine)
	logs.InitLogs()

	asked, err := command()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	err = asked.Execute() // it prints its error itself
	logs.FlushLogs()
	if err != nil {
		os.Exit(1)
	}
}
