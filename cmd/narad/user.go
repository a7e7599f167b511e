package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

func userCommand(r *remote) *cobra.Command {
	return group("user", "Add, list, grant and remove users (for admins)",
		userAdd(r), userGrant(r), userPassword(r), userList(r), userRemove(r))
}

// parseGrants reads --grant action:pattern[,pattern] texts; admin takes no patterns.
func parseGrants(texts []string) ([]client.Grant, error) {
	grants := make([]client.Grant, 0, len(texts))
	for _, text := range texts {
		action, patterns, _ := strings.Cut(text, ":")
		g := client.Grant{Action: client.Action(action)}
		switch g.Action {
		case client.ActionProduce, client.ActionConsume, client.ActionCreate:
			if patterns == "" {
				return nil, usageError{fmt.Errorf("--grant %q: want %s:<pattern>[,<pattern>]", text, action)}
			}
			g.Patterns = strings.Split(patterns, ",")
		case client.ActionAdmin:
			if patterns != "" {
				return nil, usageError{fmt.Errorf("--grant %q: admin takes no patterns", text)}
			}
		default:
			return nil, usageError{fmt.Errorf("--grant %q: want produce, consume, create or admin", text)}
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// newPassword are the flags that give an account its password.
type newPassword struct {
	text  string
	stdin bool
}

func (p *newPassword) register(c *cobra.Command) {
	c.Flags().StringVar(&p.text, "user-password", "", "the account's password; visible to other processes")
	c.Flags().BoolVar(&p.stdin, "user-password-stdin", false, "read the account's password from the first line of standard input")
}

func (p *newPassword) read(r *remote) (string, error) {
	switch {
	case p.stdin && r.passwordStdin:
		return "", usageError{errors.New("--user-password-stdin and --password-stdin exclude each other: there is one standard input")}
	case p.stdin && p.text != "":
		return "", usageError{errors.New("--user-password and --user-password-stdin exclude each other")}
	case p.stdin:
		return readSecret(r.in)
	case p.text == "":
		return "", usageError{errors.New("--user-password-stdin or --user-password is required")}
	}
	return p.text, nil
}

func userAdd(r *remote) *cobra.Command {
	var grants []string
	var password newPassword
	c := &cobra.Command{
		Use: "add <name>", Short: "Add a user", Args: cobra.ExactArgs(1),
		Example: "  narad user add billing --grant consume:orders,invoices-* --user-password-stdin < password.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			gs, err := parseGrants(grants)
			if err != nil {
				return err
			}
			secret, err := password.read(r)
			if err != nil {
				return err
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			u, err := cl.CreateUser(cmd.Context(), args[0], secret, gs...)
			if err != nil {
				return fmt.Errorf("add user %q: %w", args[0], err)
			}
			return printJSON(r.out, u)
		},
	}
	c.Flags().StringArrayVar(&grants, "grant", nil, "action:pattern[,pattern]; repeatable; actions: produce, consume, create, admin")
	password.register(c)
	return c
}

func userGrant(r *remote) *cobra.Command {
	var grants []string
	c := &cobra.Command{
		Use: "grant <name> --grant ...", Short: "Replace all grants of a user", Args: cobra.ExactArgs(1),
		Example: "  narad user grant billing --grant consume:orders --grant produce:invoices",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("grant") {
				return usageError{errors.New("--grant is required; --grant '' takes every grant away")}
			}
			if len(grants) == 1 && grants[0] == "" {
				grants = nil
			}
			gs, err := parseGrants(grants)
			if err != nil {
				return err
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			u, err := cl.SetGrants(cmd.Context(), args[0], gs...)
			if err != nil {
				return fmt.Errorf("grant to user %q: %w", args[0], err)
			}
			return printJSON(r.out, u)
		},
	}
	c.Flags().StringArrayVar(&grants, "grant", nil, "action:pattern[,pattern]; repeatable; actions: produce, consume, create, admin")
	return c
}

func userPassword(r *remote) *cobra.Command {
	var password newPassword
	c := &cobra.Command{
		Use: "password <name>", Short: "Change a user's password, or your own", Args: cobra.ExactArgs(1),
		Example: "  narad user password billing --user-password-stdin < password.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, err := password.read(r)
			if err != nil {
				return err
			}
			l, err := r.login()
			if err != nil {
				return err
			}
			cl, err := r.connect(l)
			if err != nil {
				return err
			}
			current := "" // only one's own change has to prove the old one
			if l.User == args[0] {
				current = l.Password
			}
			if err := cl.SetPassword(cmd.Context(), args[0], current, secret); err != nil {
				return fmt.Errorf("change the password of %q: %w", args[0], err)
			}
			return nil
		},
	}
	password.register(c)
	return c
}

func userList(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the users as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			us, err := cl.Users(cmd.Context())
			if err != nil {
				return fmt.Errorf("list users: %w", err)
			}
			return printJSON(r.out, us)
		},
	}
}

func userRemove(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "rm <name>", Aliases: []string{"delete"}, Short: "Remove a user", Args: cobra.ExactArgs(1),
		Example: "  narad user rm billing",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			if err := cl.DeleteUser(cmd.Context(), args[0]); err != nil {
				return fmt.Errorf("remove user %q: %w", args[0], err)
			}
			return nil
		},
	}
}
