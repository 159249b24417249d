// Watch prints every change of a partition's leader and ISR as the controller tells it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	pb "strandline.example/go/gen/strandline/v1"
	"strandline.example/go/strand"
)

const pause = 500 * time.Millisecond

func main() {
	log.SetFlags(0)
	bootstrap := flag.String("bootstrap", os.Getenv("STRANDLINE_BOOTSTRAP"), "the controller, host:port")
	duration := flag.Duration("for", time.Minute, "end after this time")
	flag.Parse()
	cluster, err := strand.Dial(*bootstrap)
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(context.Background(), *duration)
	defer cancel()
	reported := map[string]int32{}
	for ctx.Err() == nil {
		// The stream ends when the controller does; its next snapshot tells what was missed.
		if err := watch(ctx, cluster, reported); err != nil && ctx.Err() == nil {
			log.Printf("the watch ended, asking again: %v", err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

func watch(ctx context.Context, cluster *strand.Cluster, reported map[string]int32) error {
	stream, err := cluster.Controller().WatchMetadata(ctx, &pb.WatchMetadataRequest{})
	if err != nil {
		return err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, topic := range message.GetMetadata().GetTopics() {
			for _, partition := range topic.Partitions {
				tell(topic, partition, reported)
			}
		}
	}
}

func tell(topic *pb.TopicMetadata, partition *pb.PartitionMetadata, reported map[string]int32) {
	name := fmt.Sprintf("%s-%d", topic.Name, partition.PartitionIndex)
	if epoch, found := reported[topic.TopicId+name]; found && epoch == partition.PartitionEpoch {
		return
	}
	reported[topic.TopicId+name] = partition.PartitionEpoch
	leader := "nobody"
	if partition.LeaderId != nil {
		leader = fmt.Sprintf("node %d", *partition.LeaderId)
	}
	fmt.Printf("%s leader %s epoch %d isr %v\n", name, leader, partition.LeaderEpoch, partition.Isr)
}
