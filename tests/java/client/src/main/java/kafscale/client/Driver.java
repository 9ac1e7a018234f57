package kafscale.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
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
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * The Java client behind the commands of tests/support/clients/java.py: JSON, one line for each command on standard input
 * and for each answer on standard output. It ends with its input. Bytes are base64; absent bytes are null.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private record Member(KafkaConsumer<String, String> consumer, String topic) {}

    private final Map<String, Object> common;
    private final Admin admin;
    private final Records records;
    private final Map<Integer, Member> members = new HashMap<>();

    private Driver(String bootstrap) throws Exception {
        common = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        // Properties for TLS and SASL. A variable keeps passwords out of the list of processes.
        String security = System.getenv().getOrDefault("CLIENT_SECURITY", "{}");
        JSON.readTree(security).properties().forEach(one -> common.put(one.getKey(), one.getValue().asText()));
        admin = Admin.create(common);
        records = new Records(common);
    }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
            out.flush();
        }
        driver.admin.close();
    }

    private ObjectNode answer(JsonNode command) {
        ObjectNode reply = JSON.createObjectNode();
        try {
            reply.set("result", JSON.valueToTree(done(command)));
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            reply.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        return reply;
    }

    private Object done(JsonNode command) throws Exception {
        String topic = command.path("topic").asText();
        String group = command.path("group").asText();
        Member member = members.get(command.path("member").asInt());
        switch (command.get("op").asText()) {
            case "version":
                return AppInfoParser.getVersion();
            case "produce":
                return records.produce(command);
            case "init_transactions":
                records.initTransactions(command);
                return null;
            case "consume":
                return records.consume(command);
            case "offsets":
                return records.offsets(command);
            case "touch":
                return records.touch(command);
            case "open":
                open(topic, group, command);
                return null;
            case "poll":
                return polled(member.consumer.poll(Duration.ofMillis(command.get("ms").asLong())));
            case "assigned":
                return member.consumer.assignment().stream().map(TopicPartition::partition).toList();
            case "commit":
                member.consumer.commitSync(offsets(member.topic, command.get("offsets")));
                return null;
            case "seek":
                member.consumer.seek(partition(member, command), command.get("offset").asLong());
                return null;
            case "pause":
                member.consumer.pause(List.of(partition(member, command)));
                return null;
            case "resume":
                member.consumer.resume(List.of(partition(member, command)));
                return null;
            case "close":
                members.remove(command.get("member").asInt());
                member.consumer.close();
                return null;
            case "committed":
                Map<Integer, Long> committed = new HashMap<>();
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                        .forEach((of, at) -> committed.put(of.partition(), at.offset()));
                return committed;
            case "groups":
                return admin.listGroups().all().get().stream().map(GroupListing::groupId).toList();
            case "describe_group":
                ConsumerGroupDescription told = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                return List.of(told.groupState().toString(), told.members().size());
            case "delete_group":
                admin.deleteConsumerGroups(List.of(group)).all().get();
                return null;
            default:
                return doneToTopic(topic, command);
        }
    }

    private Object doneToTopic(String topic, JsonNode command) throws Exception {
        switch (command.get("op").asText()) {
            case "create_topic":
                Map<String, String> configs = new HashMap<>();
                command.get("configs").properties().forEach(one -> configs.put(one.getKey(), one.getValue().asText()));
                NewTopic made = new NewTopic(topic, Optional.of(command.get("partitions").asInt()), Optional.empty());
                admin.createTopics(List.of(made.configs(configs))).all().get();
                return null;
            case "topics":
                return admin.listTopics().names().get();
            case "partitions":
                return partitions(topic);
            case "create_partitions":
                NewPartitions total = NewPartitions.increaseTo(command.get("total").asInt());
                admin.createPartitions(Map.of(topic, total)).all().get();
                return null;
            case "delete_topic":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            case "configs":
                ConfigResource asked = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                Config config = admin.describeConfigs(List.of(asked)).all().get().get(asked);
                Map<String, String> values = new HashMap<>();
                config.entries().forEach(one -> values.put(one.name(), one.value()));
                return values;
            case "alter_config":
                ConfigEntry entry = new ConfigEntry(command.get("name").asText(), command.get("value").asText());
                ConfigResource changed = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                List<AlterConfigOp> set = List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
                admin.incrementalAlterConfigs(Map.of(changed, set)).all().get();
                return null;
            case "offsets_for_time":
                return offsetsForTime(topic, command.get("at").asLong());
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private static TopicPartition partition(Member member, JsonNode command) {
        return new TopicPartition(member.topic, command.get("partition").asInt());
    }

    private int partitions(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    private void open(String topic, String group, JsonNode command) {
        Map<String, Object> config = new HashMap<>(common);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        if (!command.get("assignor").isNull()) {
            config.put("partition.assignment.strategy", ASSIGNORS.get(command.get("assignor").asText()));
        }
        if (!command.get("auto_commit").asBoolean()) {
            config.put("enable.auto.commit", false);
        }
        if (!command.get("heartbeat_ms").isNull()) {
            config.put("heartbeat.interval.ms", command.get("heartbeat_ms").asInt());
        }
        StringDeserializer text = new StringDeserializer();
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, text, text);
        consumer.subscribe(List.of(topic));
        members.put(command.get("member").asInt(), new Member(consumer, topic));
    }

    private static List<List<Object>> polled(Iterable<ConsumerRecord<String, String>> records) {
        List<List<Object>> got = new ArrayList<>();
        records.forEach(record -> got.add(List.of(record.partition(), record.offset(), record.value())));
        return got;
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(String topic, JsonNode given) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        given.properties().forEach(one -> offsets.put(
                new TopicPartition(topic, Integer.parseInt(one.getKey())), new OffsetAndMetadata(one.getValue().asLong())));
        return offsets;
    }

    private Map<Integer, Long> offsetsForTime(String topic, long timestamp) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (int number = partitions(topic) - 1; number >= 0; number--) {
            asked.put(new TopicPartition(topic, number), OffsetSpec.forTimestamp(timestamp));
        }
        Map<Integer, Long> found = new HashMap<>();
        for (Map.Entry<TopicPartition, ListOffsetsResultInfo> one : admin.listOffsets(asked).all().get().entrySet()) {
            long offset = one.getValue().offset();
            found.put(one.getKey().partition(), offset < 0 ? null : offset);
        }
        return found;
    }
}
