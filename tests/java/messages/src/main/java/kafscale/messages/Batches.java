package kafscale.messages;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.nio.ByteBuffer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;

/** The records of batches, without control records. A class of its own: before Kafka 4.4 its imports were elsewhere. */
final class Batches {
    private Batches() {}

    /** Key, value, offset, timestamp, timestamp type and headers of each record, one after the other in {@code told}. */
    static void read(byte[] batches, ArrayNode told) {
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(batches)).batches()) {
            batch.ensureValid();
            if (batch.isControlBatch()) {
                continue;
            }
            for (Record record : batch) {
                record.ensureValid();
                ArrayNode row = told.addArray().add(bytes(record.key())).add(bytes(record.value()));
                row.add(record.offset()).add(record.timestamp()).add(batch.timestampType().id);
                ArrayNode headers = row.addArray();
                for (Header header : record.headers()) {
                    headers.addArray().add(header.key()).add(header.value());
                }
            }
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        return buffer == null ? null : Utils.toArray(buffer);
    }
}
