// Command registration-agent is OCM's own registration agent, unmodified: it joins a hub,
// and gets and renews the certificates that a ManagedClusterAddOn's registrations name.
package main

import (
	goflag "flag"
	"os"

	"github.com/spf13/pflag"
	utilflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	"open-cluster-management.io/ocm/pkg/cmd/spoke"
)

func main() {
	pflag.CommandLine.SetNormalizeFunc(utilflag.WordSepNormalizeFunc)
	pflag.CommandLine.AddGoFlagSet(goflag.CommandLine)
	logs.AddFlags(pflag.CommandLine)
	logs.InitLogs()

	err := spoke.NewRegistrationAgent().Execute() // it prints its error itself
	logs.FlushLogs()
	if err != nil {
		os.Exit(1)
	}
}
