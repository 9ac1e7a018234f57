"""A producer with librdkafka that writes one topic as fast as it can, for `tests.bench.compare`.

The arguments are a topic, the number of records, their size in bytes, and the settings of librdkafka as JSON. The last
line of the output has the form of Apache's ProducerPerformance.
"""

import json
import sys
import time
from statistics import quantiles

import confluent_kafka as ck


def main() -> None:
    """Produce the records, and print the rate and the latencies in ms. Raise KafkaException if a record is refused."""
    topic, count, record_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # The queue holds 256 MB of records, as that of the Java producer in the comparison.
    limits = {"queue.buffering.max.kbytes": 256 * 1024, "queue.buffering.max.messages": 0}
    producer = ck.Producer({**limits, **json.loads(sys.argv[4])})
    latencies: list[float] = []

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            raise ck.KafkaException(error)
        latencies.append((message.latency() or 0.0) * 1000)

    value = b"x" * record_bytes
    began = time.monotonic()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    rate = count / (time.monotonic() - began)
    megabytes = rate * record_bytes / 1e6
    cuts = quantiles(latencies, n=100)
    p50, p95, p99 = (int(cuts[percent - 1]) for percent in (50, 95, 99))
    print(
        f"{count} records sent, {rate:.1f} records/sec ({megabytes:.2f} MB/sec), "
        f"{p50} ms 50th, {p95} ms 95th, {p99} ms 99th"
    )


if __name__ == "__main__":
    main()
