package kafscale.tools;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in this JVM: one command a line from standard input, answered by
 * one line with its status and what it printed. A tool's exit ends that tool alone, after its shutdown hooks.
 */
public final class ToolRunner {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int FAILED = 1;
    private static final int TIMED_OUT = 124;

    /** Thrown where a tool would end the JVM; an Error, since tools catch exceptions. */
    private static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    private final List<Runnable> hooks = new CopyOnWriteArrayList<>();
    private volatile Integer status;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(new ToolRunner().run(JSON.readTree(line))));
            out.flush();
        }
        Exit.resetExitProcedure();
        Exit.exit(0);
    }

    private ObjectNode run(JsonNode command) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code, message));
        Exit.setHaltProcedure((code, message) -> end(code, message));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        Thread tool = new Thread(() -> call(command, out, err), "tool");
        tool.setDaemon(true);
        tool.start();
        tool.join(1000L * command.get("seconds").asLong());
        if (tool.isAlive()) {
            status = TIMED_OUT;
            for (StackTraceElement frame : tool.getStackTrace()) {
                System.err.println("at " + frame);
            }
            tool.interrupt();
        }
        print(OutputStream.nullOutputStream(), OutputStream.nullOutputStream());
        ObjectNode reply = JSON.createObjectNode();
        reply.put("status", status);
        reply.put("out", out.toString(StandardCharsets.UTF_8));
        reply.put("err", err.toString(StandardCharsets.UTF_8));
        return reply;
    }

    private static void print(OutputStream out, OutputStream err) {
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
    }

    /** What a tool prints on its way out is dropped: an ended JVM prints nothing. */
    private void end(int code, String message) {
        if (status == null) {
            status = code;
            if (message != null) {
                System.err.println(message);
            }
            print(OutputStream.nullOutputStream(), OutputStream.nullOutputStream());
        }
        throw new Ended();
    }

    private void call(JsonNode command, OutputStream out, OutputStream err) {
        print(out, err);
        int otherwise = 0;
        try {
            String[] arguments = JSON.convertValue(command.get("arguments"), String[].class);
            Class.forName(command.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            otherwise = thrown.getCause() instanceof Ended ? 0 : FAILED;
            if (otherwise == FAILED) {
                thrown.getCause().printStackTrace();
            }
        } catch (ReflectiveOperationException missing) {
            otherwise = FAILED;
            missing.printStackTrace();
        }
        print(out, err);
        for (Runnable hook : hooks) {
            hook.run();
        }
        if (status == null) {
            status = otherwise;
        }
    }
}
