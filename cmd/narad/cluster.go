package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func clusterCommand(r *remote) *cobra.Command {
	return group("cluster", "Run a playground cluster, or look at one (for admins)",
		clusterDev(r.stdio), clusterMembers(r), clusterMoves(r))
}

// clusterMembers lists the members, and holds the verb that removes what is none.
func clusterMembers(r *remote) *cobra.Command {
	var detail bool
	c := &cobra.Command{
		Use: "members", Short: "List the members as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			members, err := cl.Members(cmd.Context(), detail)
			if err != nil {
				return fmt.Errorf("list members: %w", err)
			}
			return printJSON(r.out, members)
		},
	}
	c.Flags().BoolVar(&detail, "detail", false, "also ask every member about itself")
	c.AddCommand(&cobra.Command{
		Use: "forget <id>", Short: "Remove a Raft server that never became a member", Args: cobra.ExactArgs(1),
		Long: "Remove a server that is in the Raft configuration and has no member record: a node\n" +
			"that was admitted and never came up. Members are refused, and no data is touched.",
		Example: "  narad cluster members forget narad-3",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			voter, err := cl.ForgetServer(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("forget server %q: %w", args[0], err)
			}
			return printJSON(r.out, struct {
				ID    string `json:"id"`
				Voter bool   `json:"voter"`
			}{args[0], voter})
		},
	})
	return c
}

func clusterMoves(r *remote) *cobra.Command {
	var detail bool
	c := &cobra.Command{
		Use: "moves", Short: "List the partitions on their way to another member as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			moves, err := cl.Moves(cmd.Context(), detail)
			if err != nil {
				return fmt.Errorf("list moves: %w", err)
			}
			return printJSON(r.out, moves)
		},
	}
	c.Flags().BoolVar(&detail, "detail", false, "with what the members that take them over say")
	return c
}
