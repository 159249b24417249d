// Group reads a topic as a member of a consumer group: it prints partition, offset and value, separated by tabs.
//
// One goroutine does everything in turn, so whenever a heartbeat is sent, all that was read has been printed and
// committed, and a partition that is taken away can be given up at once.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "strandline.example/go/gen/strandline/v1"
	"strandline.example/go/strand"
)

const (
	session   = 10 * time.Second
	rebalance = time.Minute
	// The coordinator may give a member's partitions away when its session is over; a member stops earlier.
	leaseShare = 0.9
	wait       = 100 * time.Millisecond
	leaveEpoch = -1
)

type member struct {
	cluster       *strand.Cluster
	group, topic  string
	id            string
	epoch         int32
	sequence      int64
	commits       int64
	topicID       string
	positions     map[int32]int64
	due, leaseEnd time.Time
}

func main() {
	log.SetFlags(0)
	bootstrap := flag.String("bootstrap", os.Getenv("STRANDLINE_BOOTSTRAP"), "the controller, host:port")
	group := flag.String("group", "example", "the group")
	topic := flag.String("topic", "tides", "the topic")
	count := flag.Int("count", 0, "end after so many records; 0: when the time is over")
	duration := flag.Duration("for", time.Minute, "end after this time")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *duration)
	defer cancel()
	err := run(ctx, *bootstrap, *group, *topic, *count)
	if err != nil && (*count > 0 || !errors.Is(err, context.DeadlineExceeded)) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, bootstrap, group, topic string, count int) error {
	cluster, err := strand.Dial(bootstrap)
	if err != nil {
		return err
	}
	defer cluster.Close()
	m := &member{cluster: cluster, group: group, topic: topic, id: rand.Text(), positions: map[int32]int64{}}
	for seen := 0; count == 0 || seen < count; {
		if !time.Now().Before(m.due) {
			if err := m.heartbeat(ctx, m.epoch); err != nil {
				return err
			}
		}
		read, err := m.read(ctx, count-seen)
		if err != nil {
			return err
		}
		seen += read
	}
	return m.heartbeat(ctx, leaveEpoch)
}

// heartbeat joins with epoch 0, stays with the epoch of the last answer, and leaves with -1. It says everything each
// time, so an answer that was lost needs no care.
func (m *member) heartbeat(ctx context.Context, epoch int32) error {
	var answer *pb.ConsumerGroupHeartbeatResponse
	var sent time.Time
	err := m.cluster.AskCoordinator(ctx, m.group, func(ctx context.Context, to pb.GroupServiceClient) (err error) {
		m.sequence++ // Every sending has a number of its own, so that a late copy changes nothing.
		sent = time.Now()
		answer, err = to.ConsumerGroupHeartbeat(ctx, &pb.ConsumerGroupHeartbeatRequest{
			GroupId: m.group, MemberId: m.id, MemberEpoch: epoch, Sequence: proto.Int64(m.sequence),
			SubscribedTopicNames: &pb.SubscribedTopicNames{Names: []string{m.topic}},
			TopicPartitions:      m.held(epoch),
			SessionTimeoutMs:     proto.Int32(int32(session.Milliseconds())),
			RebalanceTimeoutMs:   proto.Int32(int32(rebalance.Milliseconds())),
		})
		if err != nil {
			return err
		}
		if fenced(answer.ErrorCode) {
			return nil
		}
		return strand.Answer(answer.ErrorCode, answer.ErrorMessage)
	})
	if err != nil || epoch == leaveEpoch {
		return err
	}
	if fenced(answer.ErrorCode) {
		// Others may own the partitions by now: join again, with the same id.
		m.epoch, m.positions = 0, map[int32]int64{}
		return nil
	}
	m.epoch = answer.MemberEpoch
	m.leaseEnd = sent.Add(time.Duration(leaseShare * float64(answer.SessionTimeoutMs) * float64(time.Millisecond)))
	m.due = sent.Add(time.Duration(answer.HeartbeatIntervalMs) * time.Millisecond)
	if answer.Assignment == nil {
		return nil
	}
	return m.take(ctx, answer.Assignment.Topics)
}

func (m *member) held(epoch int32) *pb.MemberPartitions {
	if epoch <= 0 || len(m.positions) == 0 {
		return &pb.MemberPartitions{}
	}
	held := &pb.TopicPartitions{TopicId: m.topicID}
	for partition := range m.positions {
		held.Partitions = append(held.Partitions, partition)
	}
	return &pb.MemberPartitions{Topics: []*pb.TopicPartitions{held}}
}

// take reads what is assigned from where the group has committed, and nothing else any more.
func (m *member) take(ctx context.Context, topics []*pb.TopicPartitions) error {
	var assigned, fresh []int32
	for _, topic := range topics {
		m.topicID, assigned = topic.TopicId, topic.Partitions
	}
	for partition := range m.positions {
		if !slices.Contains(assigned, partition) {
			delete(m.positions, partition)
			m.due = time.Now() // The next heartbeat says that it is given up.
		}
	}
	for _, partition := range assigned {
		if _, known := m.positions[partition]; !known {
			fresh = append(fresh, partition)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return m.cluster.AskCoordinator(ctx, m.group, func(ctx context.Context, to pb.GroupServiceClient) error {
		wanted := &pb.OffsetFetchTopics{Topics: []*pb.TopicPartitions{{Topic: m.topic, Partitions: fresh}}}
		answer, err := to.OffsetFetch(ctx, &pb.OffsetFetchRequest{RequireStable: true, Groups: []*pb.OffsetFetchGroup{{
			GroupId: m.group, MemberId: proto.String(m.id), MemberEpoch: proto.Int32(m.epoch), Topics: wanted,
		}}})
		if err != nil {
			return err
		}
		group := answer.Groups[0]
		if err := strand.Answer(group.ErrorCode, group.ErrorMessage); err != nil {
			return err
		}
		for _, row := range group.Topics[0].Partitions {
			// Without a committed offset at the beginning; an error is never taken for that.
			if err := strand.Answer(row.ErrorCode, row.ErrorMessage); err != nil {
				return err
			}
			m.positions[row.PartitionIndex] = row.GetCommittedOffset()
		}
		return nil
	})
}

// read prints what there is in each partition, at most so many records (0 or less: any number), and commits it.
func (m *member) read(ctx context.Context, atMost int) (seen int, err error) {
	if len(m.positions) == 0 {
		time.Sleep(wait)
	}
	for partition := range m.positions {
		if !time.Now().Before(m.leaseEnd) || !time.Now().Before(m.due) {
			return seen, nil
		}
		position := m.positions[partition]
		records, next, err := m.cluster.Fetch(ctx, m.topic, int(partition), position, wait)
		if err != nil {
			return seen, err
		}
		for _, record := range records {
			if atMost > 0 && seen == atMost {
				next = record.GetOffset()
				break
			}
			fmt.Printf("%d\t%d\t%s\n", partition, record.GetOffset(), record.Value)
			seen++
		}
		if m.positions[partition] = next; next > position {
			if err := m.commit(ctx, partition); err != nil {
				return seen, err
			}
		}
		if atMost > 0 && seen == atMost {
			return seen, nil
		}
	}
	return seen, nil
}

func (m *member) commit(ctx context.Context, partition int32) error {
	return m.cluster.AskCoordinator(ctx, m.group, func(ctx context.Context, to pb.GroupServiceClient) error {
		m.commits++
		answer, err := to.OffsetCommit(ctx, &pb.OffsetCommitRequest{
			GroupId: m.group, MemberId: m.id, GenerationIdOrMemberEpoch: proto.Int32(m.epoch),
			Sequence: proto.Int64(m.commits),
			Topics: []*pb.OffsetCommitTopic{{Name: m.topic, Partitions: []*pb.OffsetCommitPartition{{
				PartitionIndex: partition, CommittedOffset: m.positions[partition],
			}}}},
		})
		if err != nil {
			return err
		}
		row := answer.Topics[0].Partitions[0]
		if fenced(row.ErrorCode) {
			// It is another member's, which reads it from the last commit on.
			delete(m.positions, partition)
			m.due = time.Now()
			return nil
		}
		return strand.Answer(row.ErrorCode, row.ErrorMessage)
	})
}

func fenced(code pb.ErrorCode) bool {
	return code == pb.ErrorCode_ERROR_CODE_FENCED_MEMBER_EPOCH || code == pb.ErrorCode_ERROR_CODE_UNKNOWN_MEMBER_ID ||
		code == pb.ErrorCode_ERROR_CODE_STALE_MEMBER_EPOCH
}
