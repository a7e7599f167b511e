package main

import "github.com/spf13/cobra"

func clusterCommand(r *remote) *cobra.Command {
	return group("cluster", "Run a playground cluster, or look at one",
		clusterDev(r.stdio))
}
