package kafscale.streams;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Objects;
import java.util.Properties;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * Counts the values of a topic in a key-value store and, by minutes, in a windowed store, both behind a repartition topic.
 *
 * <p>Arguments: bootstrap servers, application id, state directory, input topic. Prints "RUNNING" once the
 * stores are restored. Each line of standard input is a word, answered by its count and its counts of all minutes.
 */
public final class WordCounts {
    private static final String COUNTS = "counts";
    private static final String MINUTES = "minutes";
    private static final Duration DAY = Duration.ofDays(1);

    public static void main(String[] args) throws Exception {
        Properties settings = Settings.of(args[0], args[1], args[2]);
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> words = builder.<String, String>stream(args[3]).groupBy((key, word) -> word, Grouped.as("by-word"));
        words.count(Materialized.as(COUNTS));
        // With the default retention, a window expires when the next minute begins.
        words.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
                .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(MINUTES).withRetention(DAY));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setStateListener((now, before) -> {
                if (now == KafkaStreams.State.RUNNING || now == KafkaStreams.State.ERROR) {
                    System.out.println(now);
                }
            });
            streams.start();
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String word = in.readLine(); word != null; word = in.readLine()) {
                System.out.println(answer(streams, word));
            }
        }
    }

    private static String answer(KafkaStreams streams, String word) {
        ReadOnlyKeyValueStore<String, Long> counts =
                streams.store(StoreQueryParameters.fromNameAndType(COUNTS, QueryableStoreTypes.keyValueStore()));
        ReadOnlyWindowStore<String, Long> minutes =
                streams.store(StoreQueryParameters.fromNameAndType(MINUTES, QueryableStoreTypes.windowStore()));
        StringBuilder found = new StringBuilder(String.valueOf(Objects.requireNonNullElse(counts.get(word), 0L)));
        try (WindowStoreIterator<Long> windows = minutes.fetch(word, Instant.now().minus(DAY), Instant.now())) {
            while (windows.hasNext()) {
                KeyValue<Long, Long> window = windows.next();
                found.append(' ').append(window.value);
            }
        }
        return found.toString();
    }
}
