package kafscale.messages;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads and writes whole frames (without their sizes) with Kafka's own generated classes.
 *
 * <p>A line of standard input is "ranges", "request KEY VERSION HEX", "response KEY VERSION HEX", "filled KEY VERSION",
 * "nulls KEY VERSION", "tagged KEY VERSION", "records HEX" or "partition COUNT HEX" (where a key goes); each is answered with a line of JSON. A frame that was read is told as values, with the bytes
 * that Kafka writes for them and the number of those that were left over; "filled" is a request with a value of its own
 * in every field of the version, "nulls" one with null wherever that is allowed, "tagged" the filled one with a tag that nobody
 * knows wherever there may be tags. Records are those of whole batches, as consumers are given them.
 */
public final class Judge {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Judge() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode reply;
            try {
                reply = answer(line.split(" "));
            } catch (Exception error) {
                reply = JSON.createObjectNode().put("error", error.toString());
            }
            out.println(reply);
        }
    }

    private static ObjectNode answer(String[] words) throws Exception {
        if (words[0].equals("ranges")) {
            return ranges();
        }
        if (words[0].equals("records")) {
            ObjectNode reply = JSON.createObjectNode();
            Batches.read(HexFormat.of().parseHex(words[1]), reply.putArray("records"));
            return reply;
        }
        if (words[0].equals("partition")) {
            byte[] key = HexFormat.of().parseHex(words.length > 2 ? words[2] : "");
            return JSON.createObjectNode()
                    .put("partition", BuiltInPartitioner.partitionForKey(key, Integer.parseInt(words[1])));
        }
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
        short version = Short.parseShort(words[2]);
        return switch (words[0]) {
            case "request" -> read(new RequestHeaderData(), type.requestHeaderVersion(version), type.newRequest(), version, words[3]);
            case "response" -> read(new ResponseHeaderData(), type.responseHeaderVersion(version), type.newResponse(), version, words[3]);
            default -> filled(type, version, words[0]);
        };
    }

    private static ObjectNode ranges() {
        ObjectNode reply = JSON.createObjectNode();
        for (ApiMessageType type : ApiMessageType.values()) {
            ArrayNode range = reply.putArray(Short.toString(type.apiKey()));
            range.add(type.name()).add(type.lowestSupportedVersion()).add(type.highestSupportedVersion(true));
        }
        return reply;
    }

    private static ObjectNode read(Message header, short headerVersion, ApiMessage body, short version, String hex)
            throws Exception {
        ByteBufferAccessor frame = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        header.read(frame, headerVersion);
        body.read(frame, version);
        return told(header, headerVersion, body, version).put("left", frame.remaining());
    }

    private static ObjectNode filled(ApiMessageType type, short version, String how) throws Exception {
        RequestHeaderData header = new RequestHeaderData()
                .setRequestApiKey(type.apiKey())
                .setRequestApiVersion(version)
                .setCorrelationId(7)
                .setClientId(how.equals("nulls") ? null : "judge");
        ApiMessage body = type.newRequest();
        new Filler(how.equals("nulls"), how.equals("tagged")).fill(body, type.requestSchemas()[version]);
        return told(header, type.requestHeaderVersion(version), body, version);
    }

    private static ObjectNode told(Message header, short headerVersion, ApiMessage body, short version) throws Exception {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = header.size(cache, headerVersion) + body.size(cache, version);
        ByteBufferAccessor written = new ByteBufferAccessor(ByteBuffer.allocate(size));
        header.write(written, cache, headerVersion);
        body.write(written, cache, version);
        ObjectNode reply = JSON.createObjectNode();
        reply.set("header", json(header, headerVersion));
        reply.set("body", json(body, version));
        return reply.put("bytes", HexFormat.of().formatHex(written.buffer().array()));
    }

    private static JsonNode json(Message message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        return (JsonNode) converter
                .getMethod("write", message.getClass(), short.class, boolean.class)
                .invoke(null, message, version, false);
    }
}
