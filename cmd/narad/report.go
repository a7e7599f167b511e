package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

func serverReport(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "report", Short: "Sum up every topic: messages, size, owners", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			tw := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "TOPIC\tPARTS\tMESSAGES\tSIZE\tOWNERS\tROLE")
			var total topicSum
			topics, partial := 0, 0
			for t, err := range cl.Topics(cmd.Context()) {
				if err != nil {
					return fmt.Errorf("report: %w", err)
				}
				d, err := cl.DescribeTopic(cmd.Context(), t.Name)
				if err != nil {
					return fmt.Errorf("report: topic %q: %w", t.Name, err)
				}
				s := sumUp(d)
				fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%s%s\n", t.Name, s.partitions, s.messages, sizeText(s.bytes),
					strings.Join(s.owners, ","), roleText(d.Role), s.missingText())
				topics++
				total.partitions += s.partitions
				total.messages += s.messages
				total.bytes += s.bytes
				if s.missing > 0 {
					partial++
				}
			}
			fmt.Fprintf(tw, "total\t%d\t%d\t%s\t\t\n", total.partitions, total.messages, sizeText(total.bytes))
			if err := tw.Flush(); err != nil {
				return err
			}
			if partial > 0 {
				fmt.Fprintf(r.out, "%d of %d topics could not be asked in full\n", partial, topics)
			}
			return nil
		},
	}
}

// topicSum is a row of the report; partitions that did not answer count in missing
// alone.
type topicSum struct {
	partitions, missing int
	messages, bytes     int64
	owners              []string // in order of first appearance
}

func sumUp(d client.TopicDetails) topicSum {
	s := topicSum{partitions: d.Partitions}
	seen := map[string]bool{}
	for _, p := range d.PartitionStats {
		if p.Status != "ok" {
			s.missing++
			continue
		}
		s.messages += p.HighWatermark - p.OldestOffset
		s.bytes += p.SizeBytes
		if !seen[p.OwnerNode] {
			seen[p.OwnerNode] = true
			s.owners = append(s.owners, p.OwnerNode)
		}
	}
	return s
}

func (s topicSum) missingText() string {
	if s.missing == 0 {
		return ""
	}
	return fmt.Sprintf(" [%d of %d partitions unavailable]", s.missing, s.partitions)
}

// sizeText is a size in binary units with one decimal.
func sizeText(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v /= 1024; v < 1024 {
			break
		}
	}
	return fmt.Sprintf("%.1f%s", v, unit)
}
