// Package strand finds who leads a partition, and finds it again when that has changed.
package strand

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "strandline.example/go/gen/strandline/v1"
)

const (
	callTimeout  = 5 * time.Second
	firstBackoff = 50 * time.Millisecond
	mostBackoff  = time.Second
)

// Cluster is a view of one cluster. It belongs to one goroutine.
type Cluster struct {
	controller  pb.ControllerServiceClient
	credentials credentials.TransportCredentials
	nodes       map[int32]string
	topics      map[string][]*pb.PartitionMetadata
	connections map[string]*grpc.ClientConn
}

// Dial connects to the controller, the first address of a list, with TLS if STRANDLINE_TLS_CERT, _KEY and _CA name files.
func Dial(bootstrap string) (*Cluster, error) {
	secured, err := transport()
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{credentials: secured, connections: map[string]*grpc.ClientConn{}}
	connection, err := cluster.connection(strings.Split(bootstrap, ",")[0])
	if err != nil {
		return nil, err
	}
	cluster.controller = pb.NewControllerServiceClient(connection)
	return cluster, nil
}

// Controller is the service that knows who leads.
func (c *Cluster) Controller() pb.ControllerServiceClient { return c.controller }

// Close ends every connection.
func (c *Cluster) Close() {
	for _, connection := range c.connections {
		_ = connection.Close()
	}
}

// Partitions is how many partitions a topic has; it waits for the topic until ctx ends.
func (c *Cluster) Partitions(ctx context.Context, topic string) (int, error) {
	err := retry(ctx, func(ctx context.Context) error {
		if err := c.refresh(ctx); err != nil {
			return err
		}
		if len(c.topics[topic]) == 0 {
			return again{fmt.Errorf("there is no topic %q", topic)}
		}
		return nil
	})
	return len(c.topics[topic]), err
}

// AskLeader calls ask with the partition's leader until it is answered or ctx ends. What ask returns for a
// partition goes through Answer, which says when another attempt helps; metadata is requested again before each.
func (c *Cluster) AskLeader(
	ctx context.Context, topic string, partition int, ask func(context.Context, pb.LeaderServiceClient) error,
) error {
	return retry(ctx, func(ctx context.Context) error {
		leader, err := c.leader(topic, partition)
		if err == nil {
			err = ask(ctx, leader)
		}
		if err != nil {
			if failed := c.refresh(ctx); failed != nil {
				return failed
			}
		}
		return err
	})
}

// AskCoordinator calls ask with the group's coordinator, which any node names, until it is answered or ctx ends.
func (c *Cluster) AskCoordinator(
	ctx context.Context, group string, ask func(context.Context, pb.GroupServiceClient) error,
) error {
	return retry(ctx, func(ctx context.Context) error {
		if err := c.refresh(ctx); err != nil {
			return err
		}
		failed := error(again{errors.New("no node is known")})
		for _, address := range c.nodes {
			coordinator, err := c.coordinator(ctx, address, group)
			if err != nil {
				failed = err
				continue
			}
			return ask(ctx, coordinator)
		}
		return failed
	})
}

func (c *Cluster) coordinator(ctx context.Context, address, group string) (pb.GroupServiceClient, error) {
	connection, err := c.connection(address)
	if err != nil {
		return nil, err
	}
	request := &pb.FindCoordinatorRequest{CoordinatorKeys: []string{group}}
	answer, err := pb.NewGroupServiceClient(connection).FindCoordinator(ctx, request)
	if err != nil {
		return nil, err
	}
	found := answer.Coordinators[0]
	if err := Answer(found.ErrorCode, found.ErrorMessage); err != nil {
		return nil, err
	}
	connection, err = c.connection(fmt.Sprintf("%s:%d", found.Host, found.Port))
	if err != nil {
		return nil, err
	}
	return pb.NewGroupServiceClient(connection), nil
}

// Fetch reads a partition's records from offset on, without those of transactions that are open or aborted; the leader
// waits for some for as long as wait. Reading goes on at next, which may lie behind records that were left out.
func (c *Cluster) Fetch(
	ctx context.Context, topic string, partition int, offset int64, wait time.Duration,
) (records []*pb.SimpleRecord, next int64, err error) {
	request := &pb.FetchRequest{
		MaxWaitMs:      proto.Int32(int32(wait.Milliseconds())),
		Decode:         true,
		IsolationLevel: pb.IsolationLevel_ISOLATION_LEVEL_READ_COMMITTED,
		Topics: []*pb.FetchTopic{{
			Topic:      topic,
			Partitions: []*pb.FetchPartition{{Partition: int32(partition), FetchOffset: offset}},
		}},
	}
	next = offset
	err = c.AskLeader(ctx, topic, partition, func(ctx context.Context, leader pb.LeaderServiceClient) error {
		answer, err := leader.Fetch(ctx, request)
		if err != nil {
			return err
		}
		if err := Answer(answer.ErrorCode, answer.ErrorMessage); err != nil {
			return err
		}
		result := answer.Responses[0].Partitions[0]
		records = result.SimpleRecords
		if result.NextOffset != nil {
			next = result.GetNextOffset()
		}
		return Answer(result.ErrorCode, result.ErrorMessage)
	})
	return records, next, err
}

// Answer turns a partition's error code into an error; nil if there is none.
func Answer(code pb.ErrorCode, sentence string) error {
	switch code {
	case pb.ErrorCode_ERROR_CODE_UNSPECIFIED:
		return nil
	case pb.ErrorCode_ERROR_CODE_NOT_LEADER_OR_FOLLOWER, pb.ErrorCode_ERROR_CODE_FENCED_LEADER_EPOCH,
		pb.ErrorCode_ERROR_CODE_UNKNOWN_LEADER_EPOCH, pb.ErrorCode_ERROR_CODE_LEADER_NOT_AVAILABLE,
		pb.ErrorCode_ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, pb.ErrorCode_ERROR_CODE_OFFSET_NOT_AVAILABLE,
		pb.ErrorCode_ERROR_CODE_NOT_ENOUGH_REPLICAS, pb.ErrorCode_ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
		pb.ErrorCode_ERROR_CODE_REQUEST_TIMED_OUT, pb.ErrorCode_ERROR_CODE_NOT_COORDINATOR,
		pb.ErrorCode_ERROR_CODE_COORDINATOR_NOT_AVAILABLE, pb.ErrorCode_ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS,
		pb.ErrorCode_ERROR_CODE_UNSTABLE_OFFSET_COMMIT:
		return again{errors.New(sentence)}
	default:
		return errors.New(sentence)
	}
}

// again is an error after which another attempt may succeed.
type again struct{ error }

// retry attempts with a deadline for each attempt, and longer and longer pauses between them.
func retry(ctx context.Context, attempt func(context.Context) error) error {
	for pause := firstBackoff; ; pause = min(2*pause, mostBackoff) {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		err := attempt(limited)
		cancel()
		if err == nil || !helps(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

func helps(err error) bool {
	var transient again
	if errors.As(err, &transient) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

func (c *Cluster) refresh(ctx context.Context) error {
	answer, err := c.controller.GetMetadata(ctx, &pb.GetMetadataRequest{})
	if err != nil {
		return err
	}
	c.nodes, c.topics = map[int32]string{}, map[string][]*pb.PartitionMetadata{}
	for _, node := range answer.Metadata.Nodes {
		client := node.Endpoints.Client
		c.nodes[node.NodeId] = fmt.Sprintf("%s:%d", client.Host, client.Port)
	}
	for _, topic := range answer.Metadata.Topics {
		c.topics[topic.Name] = topic.Partitions
	}
	return nil
}

func (c *Cluster) leader(topic string, partition int) (pb.LeaderServiceClient, error) {
	partitions := c.topics[topic]
	if partition >= len(partitions) || partitions[partition].LeaderId == nil {
		return nil, again{fmt.Errorf("%s-%d has no leader", topic, partition)}
	}
	connection, err := c.connection(c.nodes[*partitions[partition].LeaderId])
	if err != nil {
		return nil, err
	}
	return pb.NewLeaderServiceClient(connection), nil
}

func (c *Cluster) connection(address string) (*grpc.ClientConn, error) {
	if known, found := c.connections[address]; found {
		return known, nil
	}
	// Without the proxy that HTTPS_PROXY in the environment may name.
	connection, err := grpc.NewClient("dns:///"+address, grpc.WithTransportCredentials(c.credentials), grpc.WithNoProxy())
	if err == nil {
		c.connections[address] = connection
	}
	return connection, err
}

func transport() (credentials.TransportCredentials, error) {
	certificate, key := os.Getenv("STRANDLINE_TLS_CERT"), os.Getenv("STRANDLINE_TLS_KEY")
	if certificate == "" {
		return insecure.NewCredentials(), nil
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(os.Getenv("STRANDLINE_TLS_CA"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}), nil
}
