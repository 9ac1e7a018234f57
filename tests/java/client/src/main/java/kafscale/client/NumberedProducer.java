package kafscale.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends numbered records to each log in turn until standard input ends, and tells what happens to each.
 *
 * <p>Arguments: bootstrap address, topics, number of logs, name, records a second, number of shared keys, then settings
 * as NAME=VALUE. The lines are those of tests/support/chaos/history.py.
 */
public final class NumberedProducer {
    private static final int MOST_IN_FLIGHT = 1000;

    private NumberedProducer() {}

    public static void main(String[] args) throws Exception {
        Logs logs = Logs.of(args[1], args[2]);
        String name = args[3];
        long pause = 1000L * logs.count() / Integer.parseInt(args[4]);
        int keys = Integer.parseInt(args[5]);
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        for (int i = 6; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            config.put(setting[0], setting[1]);
        }
        Events events = new Events();
        Thread stop = new Thread(NumberedProducer::untilInputEnds);
        stop.start();
        Semaphore room = new Semaphore(MOST_IN_FLIGHT);
        Random sizes = new Random(name.hashCode());
        try (KafkaProducer<String, byte[]> producer =
                new KafkaProducer<>(config, new StringSerializer(), new ByteArraySerializer())) {
            for (long number = 0; stop.isAlive(); number++) {
                for (int log = 0; log < logs.count(); log++) {
                    room.acquire();
                    TopicPartition place = logs.place(log);
                    String record = log + " " + number;
                    String unique = name + "/" + log + "/" + number;
                    String key = Logs.key(unique, number, keys);
                    byte[] value = (unique + " " + ".".repeat(sizes.nextInt(600))).getBytes(StandardCharsets.US_ASCII);
                    events.tell("s " + record);
                    producer.send(new ProducerRecord<>(place.topic(), place.partition(), key, value), (metadata, error) -> {
                        room.release();
                        if (error == null) {
                            events.tell("a " + record + " " + metadata.offset());
                        } else {
                            events.tell("f " + record + " " + error.getClass().getSimpleName() + " " + error.getMessage());
                        }
                    });
                }
                Thread.sleep(pause);
            }
        }
    }

    static void untilInputEnds() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
