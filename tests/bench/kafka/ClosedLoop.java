import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The client of the bench's Kafka: a closed loop of Kafka's own producer, acks=all, one record per batch.
 *
 * It lives as long as the brokers, so that its code is compiled when it is measured. Reads one command a line, and
 * answers each with one line: "create TOPIC", "delete TOPIC", and "loop TOPIC BYTES WINDOW WARM_S RUN_S", which also
 * prints "begin" when its unmeasured seconds are over.
 */
public final class ClosedLoop {
    private static final int MOST_RECORDS = 2_000_000;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
                BufferedReader commands = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "create" -> {
                        NewTopic topic = new NewTopic(words[1], Map.of(0, List.of(1, 2, 3)));
                        admin.createTopics(List.of(topic)).all().get();
                        say("created");
                    }
                    case "delete" -> {
                        admin.deleteTopics(List.of(words[1])).all().get();
                        say("deleted");
                    }
                    case "loop" -> loop(
                            bootstrap,
                            words[1],
                            Integer.parseInt(words[2]),
                            Integer.parseInt(words[3]),
                            Double.parseDouble(words[4]),
                            Double.parseDouble(words[5]));
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
                "done %d %.3f %.3f",
                sorted.length,
                sorted[sorted.length / 2] / 1e6,
                sorted[(int) (sorted.length * 0.99)] / 1e6));
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
