import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The client of the bench's Kafka: Kafka's own producer, acks=all, in a closed loop with one record per batch, or as
 * fast as it takes records of 1 KiB; and Kafka's own consumer, which reads a topic as fast as it gives records.
 *
 * It lives as long as the brokers, so that its code is compiled when it is measured. Reads one command a line, and
 * answers each with one line: "create TOPIC PARTITIONS", "delete TOPIC", "read TOPIC", "loop TOPIC BYTES WINDOW WARM_S
 * RUN_S" and "records TOPIC BATCH_BYTES WARM_S RUN_S"; the last two also print "begin" when their unmeasured seconds
 * are over.
 */
public final class ClosedLoop {
    private static final int MOST_RECORDS = 2_000_000;
    private static final Duration SILENCE = Duration.ofSeconds(20);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
                BufferedReader commands = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "create" -> {
                        Map<Integer, List<Integer>> replicas = new HashMap<>();
                        for (int partition = 0; partition < Integer.parseInt(words[2]); partition++) {
                            replicas.put(
                                    partition,
                                    List.of(1 + partition % 3, 1 + (partition + 1) % 3, 1 + (partition + 2) % 3));
                        }
                        admin.createTopics(List.of(new NewTopic(words[1], replicas))).all().get();
                        say("created");
                    }
                    case "delete" -> {
                        admin.deleteTopics(List.of(words[1])).all().get();
                        say("deleted");
                    }
                    case "read" -> read(bootstrap, words[1]);
                    case "loop" -> loop(
                            bootstrap,
                            words[1],
                            Integer.parseInt(words[2]),
                            Integer.parseInt(words[3]),
                            Double.parseDouble(words[4]),
                            Double.parseDouble(words[5]));
                    case "records" -> records(
                            bootstrap,
                            words[1],
                            Integer.parseInt(words[2]),
                            Double.parseDouble(words[3]),
                            Double.parseDouble(words[4]));
                    default -> throw new IllegalArgumentException(line);
                }
            }
        }
    }

    private static void loop(
            String bootstrap, String topic, int sizeBytes, int window, double warmS, double runS) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "acks", "all",
                "linger.ms", 0,
                "batch.size", sizeBytes,
                "max.in.flight.requests.per.connection", Math.min(window, 5));
        byte[] value = new byte[sizeBytes - 100];
        new Random(1).nextBytes(value);
        long[] latencies = new long[MOST_RECORDS];
        AtomicInteger count = new AtomicInteger();
        AtomicReference<Exception> failure = new AtomicReference<>();
        Semaphore slots = new Semaphore(window);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            long begin = System.nanoTime() + (long) (warmS * 1e9);
            long end = Long.MAX_VALUE;
            while (true) {
                slots.acquire();
                long sent = System.nanoTime();
                if (end == Long.MAX_VALUE && sent >= begin) {
                    say("begin");
                    end = sent + (long) (runS * 1e9);
                }
                if (sent >= end || failure.get() != null) {
                    break;
                }
                boolean counts = end != Long.MAX_VALUE;
                producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, error) -> {
                    if (error != null) {
                        failure.set(error);
                    } else if (counts) {
                        latencies[count.getAndIncrement()] = System.nanoTime() - sent;
                    }
                    slots.release();
                });
            }
            // One permit is held since the last turn; the others come back with the last answers.
            slots.acquire(window - 1);
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        long[] sorted = Arrays.copyOf(latencies, count.get());
        Arrays.sort(sorted);
        say(String.format(
                Locale.ROOT,
                "done %d %.3f %.3f %.3f",
                sorted.length,
                percentile(sorted, 50),
                percentile(sorted, 99),
                percentile(sorted, 99.9)));
    }

    /** By nearest rank, in ms. */
    private static double percentile(long[] sorted, double percent) {
        int rank = (int) Math.ceil(Math.round(percent * sorted.length * 1e4) / 1e6);
        return sorted[Math.max(1, rank) - 1] / 1e6;
    }

    private static void records(String bootstrap, String topic, int batchBytes, double warmS, double runS)
            throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "acks", "all",
                "linger.ms", 5,
                "batch.size", batchBytes,
                "max.in.flight.requests.per.connection", 5);
        byte[] value = new byte[1024];
        new Random(1).nextBytes(value);
        AtomicReference<Exception> failure = new AtomicReference<>();
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            sendFor(warmS, producer, topic, value, failure);
            say("begin");
            int sent = sendFor(runS, producer, topic, value, failure);
            if (failure.get() != null) {
                throw failure.get();
            }
            say("done " + sent);
        }
    }

    /** Returns when everything that was sent is acknowledged. */
    private static int sendFor(
            double seconds,
            KafkaProducer<byte[], byte[]> producer,
            String topic,
            byte[] value,
            AtomicReference<Exception> failure) {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        int sent = 0;
        for (; System.nanoTime() < end && failure.get() == null; sent++) {
            producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                if (error != null) {
                    failure.set(error);
                }
            });
        }
        producer.flush();
        return sent;
    }

    /** From the first record that came, as for the other clients: finding the leaders is not what is measured. */
    private static void read(String bootstrap, String topic) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(one -> new TopicPartition(topic, one.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long held = consumer.endOffsets(partitions).values().stream().mapToLong(Long::longValue).sum();
            long read = 0;
            long sizeBytes = 0;
            long began = 0;
            while (read < held) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(SILENCE);
                if (records.isEmpty()) {
                    throw new IllegalStateException("read " + read + " of " + held + " records, and no more came");
                }
                began = began == 0 ? System.nanoTime() : began;
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    sizeBytes += record.value().length;
                }
                read += records.count();
            }
            say(String.format(Locale.ROOT, "done %d %d %.3f", read, sizeBytes, (System.nanoTime() - began) / 1e9));
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
