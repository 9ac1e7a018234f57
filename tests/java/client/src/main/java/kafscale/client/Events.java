package kafscale.client;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Lines on standard output, each behind the time of the machine's monotonic clock, which never goes back. */
final class Events {
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    synchronized void tell(String what) {
        long now = System.nanoTime() / 1000;
        out.printf("%d.%06d %s%n", now / 1_000_000, now % 1_000_000, what.replace('\n', ' '));
        out.flush();
    }
}
