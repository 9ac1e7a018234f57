package kafscale.client;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends "0", "1", "2" ... to one partition, each once, until standard input ends; prints "NUMBER OFFSET" for each ack.
 *
 * <p>Arguments: bootstrap address, topic, partition, then producer settings as NAME=VALUE.
 */
public final class AckedProducer {
    private static final int MOST_IN_FLIGHT = 500;

    private AckedProducer() {}

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        for (int i = 3; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            config.put(setting[0], setting[1]);
        }
        Thread stop = new Thread(AckedProducer::untilInputEnds);
        stop.start();
        Semaphore room = new Semaphore(MOST_IN_FLIGHT);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, plain, plain)) {
            for (long number = 0; stop.isAlive(); number++) {
                String text = Long.toString(number);
                room.acquire();
                byte[] value = text.getBytes(StandardCharsets.US_ASCII);
                producer.send(new ProducerRecord<>(args[1], Integer.parseInt(args[2]), null, value), (metadata, error) -> {
                    room.release();
                    if (error == null) {
                        out.println(text + " " + metadata.offset());
                    }
                });
            }
        }
    }

    private static void untilInputEnds() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            while (in.readLine() != null) {
                continue;
            }
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
