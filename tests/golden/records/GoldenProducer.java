import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends the records of a file as one batch. Arguments: bootstrap server, compression.type, the file that capture.py wrote. */
public class GoldenProducer {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("compression.type", args[1]);
        settings.put("enable.idempotence", "false");
        settings.put("acks", "1");
        settings.put("batch.size", "4000000");
        settings.put("linger.ms", "60000");
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain)) {
            for (String line : Files.readAllLines(Path.of(args[2]))) {
                String[] fields = line.split(" ");
                var record = new ProducerRecord<>("golden", 0, Long.parseLong(fields[0]), bytes(fields[1]), bytes(fields[2]));
                for (int i = 3; i < fields.length; i += 2) {
                    record.headers().add(new RecordHeader(new String(bytes(fields[i]), "UTF-8"), bytes(fields[i + 1])));
                }
                producer.send(record);
            }
            producer.flush();
        }
    }

    private static byte[] bytes(String field) {
        return field.equals("null") ? null : HexFormat.of().parseHex(field.substring(1));
    }
}
