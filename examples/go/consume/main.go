// Consume prints the committed records of one partition: partition, offset and value, separated by tabs.
//
// The leader holds a fetch until there is something to read, so waiting costs nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"strandline.example/go/strand"
)

func main() {
	log.SetFlags(0)
	bootstrap := flag.String("bootstrap", os.Getenv("STRANDLINE_BOOTSTRAP"), "the controller, host:port")
	topic := flag.String("topic", "tides", "the topic")
	partition := flag.Int("partition", 0, "the partition")
	offset := flag.Int64("offset", 0, "the first offset")
	count := flag.Int("count", 0, "end after so many records; 0: when the time is over")
	duration := flag.Duration("for", time.Minute, "end after this time")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *duration)
	defer cancel()
	err := run(ctx, *bootstrap, *topic, *partition, *offset, *count)
	if err != nil && (*count > 0 || !errors.Is(err, context.DeadlineExceeded)) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, bootstrap, topic string, partition int, offset int64, count int) error {
	cluster, err := strand.Dial(bootstrap)
	if err != nil {
		return err
	}
	defer cluster.Close()
	for seen := 0; count == 0 || seen < count; {
		records, next, err := cluster.Fetch(ctx, topic, partition, offset, time.Second)
		if err != nil {
			return err
		}
		offset = next
		for _, record := range records {
			fmt.Printf("%d\t%d\t%s\n", partition, record.GetOffset(), record.Value)
			if seen++; seen == count {
				break
			}
		}
	}
	return nil
}
