package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

func topicCommand(r *remote) *cobra.Command {
	c := group("topic", "Create, list, describe, alter, link and delete topics",
		topicCreate(r), topicList(r), topicDescribe(r), topicAlter(r), topicSchema(r), topicDelete(r),
		topicAttach(r), topicDetach(r), topicChildren(r), topicWait(r))
	c.Aliases = []string{"topics"}
	return c
}

// foreverWord is how the command line spells a retention without end.
const foreverWord = "forever"

// retentionMS turns a --retention text into the API's milliseconds; nil = not given.
func retentionMS(s string) (*int64, error) {
	if s == "" {
		return nil, nil
	}
	var ms int64
	if s != foreverWord {
		d, err := time.ParseDuration(s)
		if err != nil {
			return nil, usageError{fmt.Errorf("--retention %q: want a duration such as 48h, or %s", s, foreverWord)}
		}
		if d == 0 {
			return nil, usageError{fmt.Errorf("--retention 0 is ambiguous: say %s to keep messages forever", foreverWord)}
		}
		ms = d.Milliseconds()
	}
	return &ms, nil
}

func topicCreate(r *remote) *cobra.Command {
	var in client.CreateTopic
	var retention, schema string
	var visibility, delay time.Duration
	c := &cobra.Command{
		Use: "create <name>", Aliases: []string{"add"}, Short: "Create a topic",
		Example: "  narad topic create orders --partitions 6 --retention 48h --visibility 1m\n" +
			"  narad topic create orders-due --parent orders --delay 1m",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ms, err := retentionMS(retention)
			if err != nil {
				return err
			}
			in.FanoutDelayMS = delay.Milliseconds()
			in.Name, in.RetentionMS, in.VisibilityTimeoutMS = args[0], ms, visibility.Milliseconds()
			if in.Schema, err = schemaText(schema, r.in); err != nil {
				return err
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			t, err := cl.CreateTopic(cmd.Context(), in)
			if err != nil {
				return fmt.Errorf("create topic %q: %w", in.Name, err)
			}
			return printJSON(r.out, t)
		},
	}
	f := c.Flags()
	f.IntVar(&in.Partitions, "partitions", 0, "number of partitions (0 = server default)")
	f.StringVar(&retention, "retention", "", "how long messages are kept, such as 48h, or forever (default: the server's)")
	f.StringVar(&schema, "schema", "", "JSON Schema that every payload must meet: the document, @file, or - for standard input")
	f.DurationVar(&visibility, "visibility", 0, "lease length; fixed for the topic's life (0 = server default)")
	f.StringVar(&in.Parent, "parent", "", "make it a child of this topic: it gets a copy of what is produced to that one from now on")
	f.DurationVar(&delay, "delay", 0, "of a child: copy each message this long after it was committed to the parent")
	f.IntVar(&in.MaxInFlight, "max-in-flight", 0, "leases a partition gives out at most (0 = server default)")
	f.IntVar(&in.MaxAckedAhead, "max-acked-ahead", 0, "acks a partition holds above its oldest unacked message (0 = server default)")
	return c
}

func topicList(r *remote) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List every topic", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			topics := []client.Topic{}
			for t, err := range cl.Topics(cmd.Context()) {
				if err != nil {
					return fmt.Errorf("list topics: %w", err)
				}
				topics = append(topics, t)
			}
			if asJSON {
				return printJSON(r.out, topics)
			}
			tw := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "NAME\tPARTITIONS\tRETENTION\tROLE")
			for _, t := range topics {
				fmt.Fprintf(tw, "%s\t%d\t%s\t%s\n", t.Name, t.Partitions, retentionText(t.RetentionMS), roleText(t.Role))
			}
			return tw.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the topics as a JSON array")
	return c
}

func retentionText(ms int64) string {
	if ms == 0 {
		return foreverWord
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

func roleText(role string) string {
	if role == "" || role == "standalone" {
		return "-"
	}
	return role
}

func topicDescribe(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "describe <name>", Aliases: []string{"info"}, Short: "Show a topic and its partitions as JSON", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			t, err := cl.DescribeTopic(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("describe topic %q: %w", args[0], err)
			}
			return printJSON(r.out, t)
		},
	}
}

func topicAlter(r *remote) *cobra.Command {
	var partitions, inFlight, ackedAhead, base int
	var retention, schema string
	c := &cobra.Command{
		Use: "alter <name>", Aliases: []string{"edit"}, Short: "Change a topic's retention, partitions, caps or schema",
		Example: "  narad topic alter orders --partitions 12 --retention forever\n  narad topic alter orders --schema @order.schema.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ms, err := retentionMS(retention)
			if err != nil {
				return err
			}
			in := client.AlterTopic{RetentionMS: ms}
			given := func(name string, v *int) *int {
				if cmd.Flags().Changed(name) {
					return v
				}
				return nil
			}
			in.Partitions = given("partitions", &partitions)
			in.MaxInFlight = given("max-in-flight", &inFlight)
			in.MaxAckedAhead = given("max-acked-ahead", &ackedAhead)
			document, err := schemaText(schema, r.in)
			if err != nil {
				return err
			}
			baseGiven := cmd.Flags().Changed("schema-base-version")
			switch {
			case in == (client.AlterTopic{}) && document == nil:
				return usageError{errors.New("nothing to change: give at least one flag")}
			case baseGiven && document == nil:
				return usageError{errors.New("--schema-base-version goes with --schema")}
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			var t client.Topic
			if in != (client.AlterTopic{}) {
				t, err = cl.AlterTopic(cmd.Context(), args[0], in)
			}
			switch {
			case err != nil || document == nil:
			case baseGiven:
				t, err = cl.SetSchemaOver(cmd.Context(), args[0], base, document)
			default:
				t, err = cl.SetSchema(cmd.Context(), args[0], document)
			}
			if err != nil {
				return fmt.Errorf("alter topic %q: %w", args[0], err)
			}
			return printJSON(r.out, t)
		},
	}
	f := c.Flags()
	f.IntVar(&partitions, "partitions", 0, "new number of partitions; only up")
	f.StringVar(&schema, "schema", "", "next version of the JSON Schema: the document, @file, or - for standard input")
	f.IntVar(&base, "schema-base-version", 0, "refuse unless this is the current schema version (0 = there is none yet)")
	f.StringVar(&retention, "retention", "", "how long messages are kept, such as 48h, or forever")
	f.IntVar(&inFlight, "max-in-flight", 0, "leases a partition gives out at most (0 = server default)")
	f.IntVar(&ackedAhead, "max-acked-ahead", 0, "acks a partition holds above its oldest unacked message (0 = server default)")
	return c
}

// schemaBytesMax bounds a schema document that is read; the server's own limit.
const schemaBytesMax = 256 << 10

// schemaText reads a --schema value: the document itself, @file, or - for standard
// input; "" is no schema.
func schemaText(v string, in io.Reader) (json.RawMessage, error) {
	if v == "" {
		return nil, nil
	}
	b := []byte(v)
	if v == "-" || v[0] == '@' {
		if v[0] == '@' {
			f, err := os.Open(v[1:])
			if err != nil {
				return nil, fmt.Errorf("--schema: %w", err)
			}
			defer f.Close()
			in = f
		}
		var err error
		if b, err = io.ReadAll(io.LimitReader(in, schemaBytesMax+1)); err != nil {
			return nil, fmt.Errorf("--schema: %w", err)
		}
	}
	if len(b) > schemaBytesMax {
		return nil, fmt.Errorf("--schema: the document is larger than %d bytes", schemaBytesMax)
	}
	if !json.Valid(b) {
		return nil, usageError{errors.New("--schema: the document is not JSON")}
	}
	return b, nil
}

func topicSchema(r *remote) *cobra.Command {
	var current bool
	c := &cobra.Command{
		Use: "schema <name>", Short: "Show a topic's schema versions as JSON", Args: cobra.ExactArgs(1),
		Example: "  narad topic schema orders --current",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			h, err := cl.Schemas(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("schema of topic %q: %w", args[0], err)
			}
			switch {
			case !current:
				return printJSON(r.out, h)
			case len(h.Versions) == 0:
				fmt.Fprintln(r.out, "no schema")
				return nil
			}
			return printJSON(r.out, h.Versions[len(h.Versions)-1].Schema)
		},
	}
	c.Flags().BoolVar(&current, "current", false, "print the current document alone")
	return c
}

func topicDelete(r *remote) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "delete <name>", Aliases: []string{"rm"}, Short: "Delete a topic and all its data", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !force {
				if err := confirm(r.stdio, fmt.Sprintf("delete topic %q and all its data?", args[0])); err != nil {
					return err
				}
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			if err := cl.DeleteTopic(cmd.Context(), args[0]); err != nil {
				return fmt.Errorf("delete topic %q: %w", args[0], err)
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "do not ask")
	return c
}

// confirm asks on a terminal; any other input is a refusal, so that a script has to
// say --force.
func confirm(io stdio, question string) error {
	if !interactive(io.in) {
		return errors.New("refusing without a terminal to ask on: pass --force")
	}
	fmt.Fprintf(io.err, "%s [y/N] ", question)
	line, err := bufio.NewReader(io.in).ReadString('\n')
	if err != nil && line == "" {
		return fmt.Errorf("no answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not confirmed; nothing was changed")
}

// interactive reports whether v is a terminal: a character device that is not the
// null device.
func interactive(v any) bool {
	f, ok := v.(*os.File)
	if !ok || f.Name() == os.DevNull {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
