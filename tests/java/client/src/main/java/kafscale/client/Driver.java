package kafscale.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Reads one command a line from standard input, answers one line each. Bytes are base64, absent bytes null. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
            out.flush();
        }
    }

    private ObjectNode answer(JsonNode command) {
        try {
            return switch (command.get("op").asText()) {
                case "create_topic" -> createTopic(command);
                case "delete_topic" -> deleteTopic(command);
                case "produce" -> produce(command);
                case "init_transactions" -> initTransactions(command);
                case "consume" -> consume(command);
                case "offsets" -> offsets(command);
                case "offset_for_time" -> offsetForTime(command);
                case "partitions" -> partitions(command);
                default -> throw new IllegalArgumentException(command.toString());
            };
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            ObjectNode reply = JSON.createObjectNode();
            reply.put("error", cause.getClass().getSimpleName());
            reply.put("message", String.valueOf(cause.getMessage()));
            return reply;
        }
    }

    private Map<String, Object> config(JsonNode command) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        JsonNode given = command.path("config");
        given.fieldNames().forEachRemaining(name -> config.put(name, given.get(name).asText()));
        return config;
    }

    private static TopicPartition partition(JsonNode command) {
        return new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
    }

    private ObjectNode createTopic(JsonNode command) throws Exception {
        Map<String, String> configs = new HashMap<>();
        JsonNode given = command.get("configs");
        given.fieldNames().forEachRemaining(name -> configs.put(name, given.get(name).asText()));
        try (Admin admin = Admin.create(config(command))) {
            Optional<Integer> partitions = Optional.of(command.get("partitions").asInt());
            NewTopic topic = new NewTopic(command.get("topic").asText(), partitions, Optional.empty());
            admin.createTopics(List.of(topic.configs(configs))).all().get();
        }
        return JSON.createObjectNode();
    }

    private ObjectNode deleteTopic(JsonNode command) throws Exception {
        try (Admin admin = Admin.create(config(command))) {
            admin.deleteTopics(List.of(command.get("topic").asText())).all().get();
        }
        return JSON.createObjectNode();
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node == null || node.isNull() ? null : node.binaryValue();
    }

    private ObjectNode produce(JsonNode command) throws Exception {
        TopicPartition to = partition(command);
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
                        to.topic(), to.partition(), timestamp, bytes(record.get("key")), bytes(record.get("value")), headers)));
            }
            producer.flush();
            ObjectNode reply = JSON.createObjectNode();
            ArrayNode offsets = reply.putArray("offsets");
            for (Future<RecordMetadata> future : sent) {
                offsets.add(future.get().offset());
            }
            return reply;
        }
    }

    private ObjectNode initTransactions(JsonNode command) {
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config(command), plain, plain)) {
            producer.initTransactions();
        }
        return JSON.createObjectNode();
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

    private ObjectNode consume(JsonNode command) {
        TopicPartition from = partition(command);
        int count = command.get("count").asInt();
        long deadline = System.nanoTime() + Duration.ofSeconds(command.get("timeout_seconds").asLong()).toNanos();
        ObjectNode reply = JSON.createObjectNode();
        ArrayNode records = reply.putArray("records");
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
        return reply;
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

    private ObjectNode offsets(JsonNode command) {
        TopicPartition of = partition(command);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            ObjectNode reply = JSON.createObjectNode();
            reply.put("earliest", consumer.beginningOffsets(List.of(of)).get(of));
            reply.put("latest", consumer.endOffsets(List.of(of)).get(of));
            return reply;
        }
    }

    private ObjectNode offsetForTime(JsonNode command) {
        TopicPartition of = partition(command);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(of, command.get("timestamp").asLong())).get(of);
            ObjectNode reply = JSON.createObjectNode();
            reply.put("offset", found == null ? -1 : found.offset());
            return reply;
        }
    }

    private ObjectNode partitions(JsonNode command) {
        try (KafkaConsumer<byte[], byte[]> consumer = idleConsumer(command)) {
            ObjectNode reply = JSON.createObjectNode();
            var known = consumer.partitionsFor(command.get("topic").asText());
            reply.put("partitions", known == null ? 0 : known.size());
            return reply;
        }
    }
}
