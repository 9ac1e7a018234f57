package kafscale.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Two members of a group, with the client's defaults, that read a topic until standard input ends and commit what they
 * have read. An error that reaches them ends the program.
 *
 * <p>Arguments: bootstrap address, topic, group, and settings as NAME=VALUE. Where enable.auto.commit is one of them the
 * client alone commits, and repeats what fails. The lines are those of tests/support/chaos/history.py.
 */
public final class GroupReader {
    private static final int MEMBERS = 2;

    private GroupReader() {}

    public static void main(String[] args) throws Exception {
        Events events = new Events();
        Thread stop = new Thread(NumberedProducer::untilInputEnds);
        stop.start();
        Map<String, Object> settings = new HashMap<>();
        for (String setting : List.of(args).subList(3, args.length)) {
            settings.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        }
        List<KafkaConsumer<byte[], byte[]>> members = new ArrayList<>();
        for (int number = 0; number < MEMBERS; number++) {
            members.add(member(number, args, settings, events));
        }
        try {
            while (stop.isAlive()) {
                for (KafkaConsumer<byte[], byte[]> member : members) {
                    for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(100))) {
                        String name = new String(record.value(), StandardCharsets.ISO_8859_1).split(" ", 2)[0];
                        events.tell("r " + record.partition() + " " + record.offset() + " " + name);
                    }
                    if (settings.containsKey("enable.auto.commit")) {
                        continue;
                    }
                    try {
                        member.commitSync();
                    } catch (RebalanceInProgressException error) {
                        // The next poll takes part in it, and the next commit is of this too.
                        continue;
                    }
                }
            }
            for (KafkaConsumer<byte[], byte[]> member : members) {
                member.close();
            }
        } catch (RuntimeException error) {
            events.tell("e " + error);
            System.exit(1);
        }
    }

    private static KafkaConsumer<byte[], byte[]> member(
            int number, String[] args, Map<String, Object> settings, Events events) {
        Map<String, Object> config = new HashMap<>(settings);
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> member = new KafkaConsumer<>(config, plain, plain);
        member.subscribe(List.of(args[1]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                events.tell("g " + number + " " + partitions.size());
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                events.tell("g " + number + " " + -partitions.size());
            }
        });
        return member;
    }
}
