// Produce appends the lines of stdin to a topic and prints where they are, once every replica in sync has them.
//
// A batch whose answer was lost is sent again, so after a failure its lines may be there twice: at least once.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	pb "strandline.example/go/gen/strandline/v1"
	"strandline.example/go/strand"
)

const batchLines = 500

func main() {
	log.SetFlags(0)
	bootstrap := flag.String("bootstrap", os.Getenv("STRANDLINE_BOOTSTRAP"), "the controller, host:port")
	topic := flag.String("topic", "tides", "the topic")
	timeout := flag.Duration("timeout", time.Minute, "give up after this time without an acknowledgement")
	flag.Parse()
	if err := run(*bootstrap, *topic, *timeout); err != nil {
		log.Fatal(err)
	}
}

func run(bootstrap, topic string, timeout time.Duration) error {
	cluster, err := strand.Dial(bootstrap)
	if err != nil {
		return err
	}
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	partitions, err := cluster.Partitions(ctx, topic)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for batch, number := next(lines), 0; len(batch) > 0; batch, number = next(lines), number+1 {
		if err := send(cluster, topic, number%partitions, batch, timeout); err != nil {
			return err
		}
	}
	return lines.Err()
}

func next(lines *bufio.Scanner) []*pb.SimpleRecord {
	var batch []*pb.SimpleRecord
	for len(batch) < batchLines && lines.Scan() {
		batch = append(batch, &pb.SimpleRecord{Value: []byte(lines.Text())})
	}
	return batch
}

func send(cluster *strand.Cluster, topic string, partition int, batch []*pb.SimpleRecord, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request := &pb.ProduceRequest{TopicData: []*pb.ProduceTopic{{
		Name:          topic,
		PartitionData: []*pb.ProducePartition{{Index: int32(partition), SimpleRecords: batch}},
	}}}
	return cluster.AskLeader(ctx, topic, partition, func(ctx context.Context, leader pb.LeaderServiceClient) error {
		answer, err := leader.Produce(ctx, request)
		if err != nil {
			return err
		}
		result := answer.Responses[0].PartitionResponses[0]
		if err := strand.Answer(result.ErrorCode, result.ErrorMessage); err != nil {
			return err
		}
		first := result.GetBaseOffset()
		fmt.Printf("%s-%d %d to %d\n", topic, partition, first, first+int64(len(batch))-1)
		return nil
	})
}
