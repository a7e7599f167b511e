package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/internal/disk"
)

// contexts is the file of saved logins (spec/operations section 8.2).
type contexts struct {
	Current  string           `json:"current"`
	Contexts map[string]login `json:"contexts"`
}

// contextsBytesMax bounds the file that is read.
const contextsBytesMax = 1 << 20

func contextsPath() (string, error) {
	if dir := os.Getenv("NARAD_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, "contexts.json"), nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "narad", "contexts.json"), nil
}

// loadContexts reads the file; without one, or without a place for one, there are no
// contexts.
func loadContexts() (contexts, error) {
	c := contexts{Contexts: map[string]login{}}
	name, err := contextsPath()
	if err != nil {
		return c, nil
	}
	b, err := disk.ReadFile(disk.OS{}, name, contextsBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return c, fmt.Errorf("contexts: %s: %w", name, err)
	}
	return c, nil
}

func (c contexts) save() error {
	name, err := contextsPath()
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return disk.WriteFileAtomic(disk.OS{}, filepath.ToSlash(name), append(b, '\n'))
}

func contextCommand(r *remote) *cobra.Command {
	c := group("ctx", "Save servers and users under a name", contextAdd(r), contextSelect(r), contextList(r), contextRemove(r))
	c.Long = "Save servers and users under a name, in contexts.json under your configuration directory\n" +
		"(or $NARAD_CONFIG_DIR), readable by you alone. The selected one is used when neither a flag\nnor a variable says otherwise."
	return c
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func contextAdd(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "add <name> --server <url>", Short: "Add a context, or change one", Args: cobra.ExactArgs(1),
		Long:    "Add a context from --server, --user and --password or --password-stdin, or change the one of\nthat name. The first one added is selected.",
		Example: "  narad ctx add prod --server https://narad.example.com --user orders --password-stdin < password.txt",
		RunE: func(_ *cobra.Command, args []string) error {
			if !contextName.MatchString(args[0]) {
				return usageError{fmt.Errorf("context name %q: want 1 to 64 of A-Z a-z 0-9 . _ -", args[0])}
			}
			if !r.given("server") {
				return usageError{errors.New("--server is required")}
			}
			if r.given("password") && r.passwordStdin {
				return usageError{errors.New("--password and --password-stdin exclude each other")}
			}
			l := login{Server: r.server, User: r.user, Password: r.password}
			if r.passwordStdin {
				var err error
				if l.Password, err = readSecret(r.in); err != nil {
					return fmt.Errorf("--password-stdin: %w", err)
				}
			}
			c, err := loadContexts()
			if err != nil {
				return err
			}
			c.Contexts[args[0]] = l
			if len(c.Contexts) == 1 {
				c.Current = args[0]
			}
			if err := c.save(); err != nil {
				return err
			}
			fmt.Fprintf(r.out, "context %q saved (current: %s)\n", args[0], c.Current)
			return nil
		},
	}
}

func contextSelect(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "select <name>", Short: "Use this context from now on", Args: cobra.ExactArgs(1),
		Example: "  narad ctx select prod",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			if _, ok := c.Contexts[args[0]]; !ok {
				return fmt.Errorf("no context %q; 'narad ctx ls' lists them", args[0])
			}
			c.Current = args[0]
			if err := c.save(); err != nil {
				return err
			}
			fmt.Fprintf(r.out, "current context: %s\n", c.Current)
			return nil
		},
	}
}

func contextList(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the contexts; * marks the selected one", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			warnReadable(r.stdio)
			tw := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				mark, l := " ", c.Contexts[name]
				if name == c.Current {
					mark = "*"
				}
				user := l.User
				if user == "" {
					user = "-"
				}
				fmt.Fprintf(tw, "%s %s\t%s\tuser=%s\n", mark, name, l.Server, user)
			}
			return tw.Flush()
		},
	}
}

// warnReadable points out a file of passwords that others can read.
func warnReadable(io stdio) {
	name, err := contextsPath()
	if err != nil || runtime.GOOS == "windows" {
		return
	}
	if info, err := os.Stat(name); err == nil && info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(io.err, "warning: %s holds passwords and others can read it: chmod 600 %s\n", name, name)
	}
}

func contextRemove(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "rm <name>", Aliases: []string{"delete"}, Short: "Remove a context", Args: cobra.ExactArgs(1),
		Example: "  narad ctx rm old",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := loadContexts()
			if err != nil {
				return err
			}
			if _, ok := c.Contexts[args[0]]; !ok {
				return fmt.Errorf("no context %q; 'narad ctx ls' lists them", args[0])
			}
			delete(c.Contexts, args[0])
			if c.Current == args[0] {
				c.Current = ""
			}
			return c.save()
		},
	}
}
