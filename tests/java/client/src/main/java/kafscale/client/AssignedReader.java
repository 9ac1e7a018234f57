package kafscale.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads all logs from their beginning, without a group, and tells what it got.
 *
 * <p>Arguments: "read" (until standard input ends) or "reread" (up to the ends that it is told at first), bootstrap
 * address, topics, number of logs. The lines are those of tests/support/chaos/history.py.
 */
public final class AssignedReader {
    private AssignedReader() {}

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[1]);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", false);
        Events events = new Events();
        List<TopicPartition> assigned = new ArrayList<>();
        Logs logs = Logs.of(args[2], args[3]);
        for (int log = 0; log < logs.count(); log++) {
            assigned.add(logs.place(log));
        }
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, plain, plain)) {
            consumer.assign(assigned);
            for (TopicPartition partition : assigned) {
                consumer.seek(partition, 0);
                events.tell("m " + logs.number(partition.topic(), partition.partition()) + " 0");
            }
            if (args[0].equals("read")) {
                Thread stop = new Thread(NumberedProducer::untilInputEnds);
                stop.start();
                while (stop.isAlive()) {
                    poll(consumer, logs, events);
                }
                return;
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(assigned, Duration.ofSeconds(60));
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                poll(consumer, logs, events);
            }
        }
    }

    private static void poll(KafkaConsumer<byte[], byte[]> consumer, Logs logs, Events events) {
        try {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                String value = new String(record.value(), StandardCharsets.ISO_8859_1);
                int blank = value.indexOf(' ');
                String name = blank < 0 ? value : value.substring(0, blank);
                int log = logs.number(record.topic(), record.partition());
                events.tell("r " + log + " " + record.offset() + " " + name);
            }
        } catch (RetriableException error) {
            return;
        } catch (KafkaException error) {
            events.tell("e " + error);
            throw error;
        }
    }
}
