package kafscale.client;

import java.util.List;
import org.apache.kafka.common.TopicPartition;

/** The partitions of some topics, numbered as tests/support/chaos/workload.py does. */
record Logs(List<String> topics, int count) {
    private static final int OWN_KEYS = 4;

    /** From the topics, separated by commas, and the number of their partitions. */
    static Logs of(String topics, String count) {
        return new Logs(List.of(topics.split(",")), Integer.parseInt(count));
    }

    TopicPartition place(int log) {
        return new TopicPartition(topics.get(log % topics.size()), log / topics.size());
    }

    int number(String topic, int partition) {
        return partition * topics.size() + topics.indexOf(topic);
    }

    /** The key of a record, given its name and number, and how many keys the records share. */
    static String key(String name, long number, int keys) {
        return keys > 0 && number % OWN_KEYS != 0 ? Long.toString(number % keys) : name;
    }
}
