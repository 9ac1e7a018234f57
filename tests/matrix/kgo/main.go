// franz-go behind commands: one JSON line on standard input, one on standard output for each. It ends with its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const callSeconds = 60

var balancers = map[string]func() kgo.GroupBalancer{
	"range":              kgo.RangeBalancer,
	"roundrobin":         kgo.RoundRobinBalancer,
	"sticky":             kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

type command struct {
	Op          string            `json:"op"`
	Member      int               `json:"member"`
	Topic       string            `json:"topic"`
	Group       string            `json:"group"`
	Assignor    string            `json:"assignor"`
	AutoCommit  bool              `json:"auto_commit"`
	HeartbeatMs int               `json:"heartbeat_ms"`
	Ms          int               `json:"ms"`
	Offsets     map[int32]int64   `json:"offsets"`
	Partition   *int32            `json:"partition"`
	Offset      int64             `json:"offset"`
	At          int64             `json:"at"`
	Partitions  int32             `json:"partitions"`
	Total       int               `json:"total"`
	Configs     map[string]string `json:"configs"`
	Name        string            `json:"name"`
	Value       string            `json:"value"`
	Values      []string          `json:"values"`
}

// member is a consumer in a group that reads one topic.
type member struct {
	client *kgo.Client
	topic  string
	group  string
}

type driver struct {
	options  []kgo.Opt // of every client
	producer *kgo.Client
	picked   *kgo.Client // a producer to partitions that are named: franz-go chooses by the client
	admin    *kadm.Client
	members  map[int]*member
}

func main() {
	options := append(security(), kgo.SeedBrokers(strings.Split(os.Args[1], ",")...))
	d := &driver{options: options, members: map[int]*member{}}
	d.producer = must(d.client())
	d.picked = must(d.client(kgo.RecordPartitioner(kgo.ManualPartitioner())))
	d.admin = kadm.NewClient(must(d.client()))
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked command
		answer := map[string]any{}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			answer["error"] = err.Error()
		} else if result, err := d.do(asked); err != nil {
			answer["error"] = err.Error()
		} else {
			answer["result"] = result
		}
		if err := out.Encode(answer); err != nil {
			panic(err)
		}
	}
	d.producer.Close()
	d.picked.Close()
	d.admin.Close()
}

func must(client *kgo.Client, err error) *kgo.Client {
	if err != nil {
		panic(err)
	}
	return client
}

func (d *driver) client(more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(more, d.options...)...)
}

func (d *driver) do(asked command) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callSeconds*time.Second)
	defer cancel()
	if m := d.members[asked.Member]; m != nil {
		return d.doMember(ctx, m, asked)
	}
	switch asked.Op {
	case "produce":
		return nil, d.produce(ctx, asked)
	case "open":
		return nil, d.open(asked)
	case "offsets_for_time":
		listed, err := d.admin.ListOffsetsAfterMilli(ctx, asked.At, asked.Topic)
		if err != nil {
			return nil, err
		}
		offsets := map[int32]int64{}
		listed.Each(func(one kadm.ListedOffset) { offsets[one.Partition] = one.Offset })
		return offsets, listed.Error()
	case "committed":
		told, err := d.admin.FetchOffsets(ctx, asked.Group)
		offsets := map[int32]int64{}
		for partition, one := range told[asked.Topic] {
			offsets[partition] = one.At
		}
		return offsets, err
	case "groups":
		told, err := d.admin.ListGroups(ctx)
		return told.Groups(), err
	case "describe_group":
		told, err := d.admin.DescribeGroups(ctx, asked.Group)
		group := told[asked.Group]
		return []any{group.State, len(group.Members)}, first(err, group.Err)
	case "delete_group":
		told, err := d.admin.DeleteGroup(ctx, asked.Group)
		return nil, first(err, told.Err)
	}
	return d.doTopic(ctx, asked)
}

func (d *driver) doTopic(ctx context.Context, asked command) (any, error) {
	switch asked.Op {
	case "create_topic":
		configs := map[string]*string{}
		for name, value := range asked.Configs {
			configs[name] = &value
		}
		told, err := d.admin.CreateTopic(ctx, asked.Partitions, -1, configs, asked.Topic)
		return nil, first(err, told.Err)
	case "topics":
		told, err := d.admin.ListTopics(ctx)
		return told.Names(), err
	case "partitions":
		told, err := d.admin.ListTopics(ctx, asked.Topic)
		return len(told[asked.Topic].Partitions), first(err, told[asked.Topic].Err)
	case "create_partitions":
		told, err := d.admin.UpdatePartitions(ctx, asked.Total, asked.Topic)
		return nil, first(err, told[asked.Topic].Err)
	case "delete_topic":
		told, err := d.admin.DeleteTopic(ctx, asked.Topic)
		return nil, first(err, told.Err)
	case "configs":
		told, err := d.admin.DescribeTopicConfigs(ctx, asked.Topic)
		if err != nil {
			return nil, err
		}
		resource, err := told.On(asked.Topic, nil)
		configs := map[string]*string{}
		for _, one := range resource.Configs {
			configs[one.Key] = one.Value
		}
		return configs, first(err, resource.Err)
	case "alter_config":
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: asked.Name, Value: &asked.Value}
		told, err := d.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, asked.Topic)
		if err != nil {
			return nil, err
		}
		resource, err := told.On(asked.Topic, nil)
		return nil, first(err, resource.Err)
	}
	return nil, fmt.Errorf("no such command: %s", asked.Op)
}

func (d *driver) produce(ctx context.Context, asked command) error {
	client := d.producer
	var records []*kgo.Record
	for _, value := range asked.Values {
		record := &kgo.Record{Topic: asked.Topic, Value: []byte(value)}
		if asked.Partition != nil {
			client, record.Partition = d.picked, *asked.Partition
		}
		records = append(records, record)
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func (d *driver) open(asked command) error {
	options := []kgo.Opt{
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if asked.Assignor != "" {
		options = append(options, kgo.Balancers(balancers[asked.Assignor]()))
	}
	if !asked.AutoCommit {
		options = append(options, kgo.DisableAutoCommit())
	}
	if asked.HeartbeatMs > 0 {
		options = append(options, kgo.HeartbeatInterval(time.Duration(asked.HeartbeatMs)*time.Millisecond))
	}
	client, err := d.client(options...)
	d.members[asked.Member] = &member{client, asked.Topic, asked.Group}
	return err
}

// assigned asks the group: a callback for its own would take the place of kgo's, which commits at a revocation.
func (d *driver) assigned(ctx context.Context, m *member) ([]int32, error) {
	partitions := []int32{}
	id, _ := m.client.GroupMetadata()
	told, err := d.admin.DescribeGroups(ctx, m.group)
	group := told[m.group]
	for _, one := range group.Members {
		if assignment, ok := one.Assigned.AsConsumer(); ok && one.MemberID == id && group.State == "Stable" {
			for _, topic := range assignment.Topics {
				partitions = append(partitions, topic.Partitions...)
			}
		}
	}
	return partitions, err
}

func (d *driver) doMember(ctx context.Context, m *member, asked command) (any, error) {
	var one map[string][]int32
	if asked.Partition != nil {
		one = map[string][]int32{m.topic: {*asked.Partition}}
	}
	switch asked.Op {
	case "poll":
		return m.poll(ctx, time.Duration(asked.Ms)*time.Millisecond)
	case "assigned":
		return d.assigned(ctx, m)
	case "commit":
		offsets := map[int32]kgo.EpochOffset{}
		for partition, offset := range asked.Offsets {
			offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		}
		return nil, m.commit(ctx, offsets)
	case "seek":
		to := kgo.EpochOffset{Epoch: -1, Offset: asked.Offset}
		m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{m.topic: {*asked.Partition: to}})
	case "pause":
		m.client.PauseFetchPartitions(one)
	case "resume":
		m.client.ResumeFetchPartitions(one)
	case "close":
		m.client.Close()
		delete(d.members, asked.Member)
	default:
		return nil, fmt.Errorf("no such command: %s", asked.Op)
	}
	return nil, nil
}

func (m *member) commit(ctx context.Context, offsets map[int32]kgo.EpochOffset) error {
	var refused error
	asked := map[string]map[int32]kgo.EpochOffset{m.topic: offsets}
	m.client.CommitOffsetsSync(ctx, asked, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, told *kmsg.OffsetCommitResponse, err error,
	) {
		refused = err
		if told == nil {
			return
		}
		for _, topic := range told.Topics {
			for _, partition := range topic.Partitions {
				refused = first(refused, kerr.ErrorForCode(partition.ErrorCode))
			}
		}
	})
	return refused
}

func (m *member) poll(ctx context.Context, wait time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	records := [][]any{}
	fetches := m.client.PollFetches(ctx)
	for _, failed := range fetches.Errors() {
		if ctx.Err() == nil {
			return nil, failed.Err
		}
	}
	fetches.EachRecord(func(one *kgo.Record) {
		records = append(records, []any{one.Partition, one.Offset, string(one.Value)})
	})
	return records, nil
}

func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
