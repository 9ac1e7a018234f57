package kafscale.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Commands that write and read partitions without groups. Each has a client of its own, with the command's config. */
final class Records {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Object> common;

    Records(Map<String, Object> common) {
        this.common = common;
    }

    private Map<String, Object> config(JsonNode command) {
        Map<String, Object> config = new HashMap<>(common);
        JsonNode given = command.path("config");
        given.fieldNames().forEachRemaining(name -> config.put(name, given.get(name).asText()));
        return config;
    }

    private static TopicPartition partition(JsonNode command) {
        return new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node == null || node.isNull() ? null : node.binaryValue();
    }

    List<Long> produce(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        Integer partition = command.get("partition").isNull() ? null : command.get("partition").asInt();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config(command), plain, plain)) {
            for (JsonNode record : command.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
                sent.add(producer.send(new ProducerRecord<>(
                        topic, partition, timestamp, bytes(record.get("key")), bytes(record.get("value")), headers)));
            }
            producer.flush();
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> future : sent) {
                offsets.add(future.get().offset());
            }
            return offsets;
        }
    }

    void initTransactions(JsonNode command) {
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config(command), plain, plain)) {
            producer.initTransactions();
        }
    }

    private KafkaConsumer<byte[], byte[]> idleConsumer(JsonNode command) {
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        return new KafkaConsumer<>(config(command), plain, plain);
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode command) {
        KafkaConsumer<byte[], byte[]> consumer = idleConsumer(command);
        consumer.assign(List.of(partition(command)));
        return consumer;
    }

    ArrayNode consume(JsonNode command) {
        TopicPartition from = partition(command);
        int count = command.get("count").asInt();
        long deadline = System.nanoTime() + Duration.ofSeconds(command.get("timeout_seconds").asLong()).toNanos();
        ArrayNode records = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            if (command.get("offset").isNull()) {
                consumer.seekToBeginning(List.of(from));
            } else {
                consumer.seek(from, command.get("offset").asLong());
            }
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (records.size() < count) {
                        add(records, record);
                    }
                }
            }
        }
        return records;
    }

    private static void add(ArrayNode records, ConsumerRecord<byte[], byte[]> record) {
        ObjectNode item = records.addObject();
        item.put("offset", record.offset());
        item.put("timestamp", record.timestamp());
        item.put("timestamp_type", record.timestampType().name);
        item.put("key", record.key());
        item.put("value", record.value());
        ArrayNode headers = item.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
    }

    List<Long> offsets(JsonNode command) {
        TopicPartition of = partition(command);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            long first = consumer.beginningOffsets(List.of(of)).get(of);
            return List.of(first, consumer.endOffsets(List.of(of)).get(of));
        }
    }

    /** Requests the topic's metadata as a consumer does, and returns the number of its partitions. */
    int touch(JsonNode command) {
        try (KafkaConsumer<byte[], byte[]> consumer = idleConsumer(command)) {
            var known = consumer.partitionsFor(command.get("topic").asText());
            return known == null ? 0 : known.size();
        }
    }
}
