package kafscale.streams;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.LagInfo;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * Joins the values of two topics whose records have the same key within an hour, and keeps a standby replica of each store.
 *
 * <p>Arguments: bootstrap servers, application id, state directory, the two input topics, output topic. Prints "RUNNING" when
 * the application first runs. Each line of standard input is answered by the number of active tasks, the number of standby
 * tasks, the number of records that the stores lack, and the number of records that were restored.
 */
public final class Joins {
    private static final AtomicLong RESTORED = new AtomicLong();

    public static void main(String[] args) throws Exception {
        Properties settings = Settings.of(args[0], args[1], args[2]);
        settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> left = builder.stream(args[3]);
        KStream<String, String> right = builder.stream(args[4]);
        JoinWindows windows = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofHours(1));
        left.join(right, (one, other) -> one + " " + other, windows, StreamJoined.as("join")).to(args[5]);
        CountDownLatch running = new CountDownLatch(1);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setStateListener((now, before) -> {
                if (now == KafkaStreams.State.RUNNING) {
                    running.countDown();
                }
            });
            streams.setGlobalStateRestoreListener(new Restored());
            streams.start();
            running.await();
            System.out.println(KafkaStreams.State.RUNNING);
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            while (in.readLine() != null) {
                System.out.println(answer(streams));
            }
        }
    }

    private static String answer(KafkaStreams streams) {
        int active = 0;
        int standby = 0;
        for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
            active += thread.activeTasks().size();
            standby += thread.standbyTasks().size();
        }
        long lag = 0;
        for (Map<Integer, LagInfo> partitions : streams.allLocalStorePartitionLags().values()) {
            lag += partitions.values().stream().mapToLong(LagInfo::offsetLag).sum();
        }
        return active + " " + standby + " " + lag + " " + RESTORED;
    }

    /** Counts what is restored before a task becomes active. */
    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
            RESTORED.addAndGet(count);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {}
    }
}
