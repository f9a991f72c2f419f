package rs.rocketmq.e2e;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs many mqadmin calls in one process: each line of standard input holds the tab-separated words of one call,
 * and one JSON line holds what it printed on both streams. mqadmin itself is Apache's, unmodified.
 */
public final class AdminShell {
    public static void main(String[] args) throws Exception {
        PrintStream lines = System.out;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            try {
                MQAdminStartup.main(line.split("\t", -1));
            } catch (Throwable e) {
                e.printStackTrace(capture);
            }
            capture.flush();
            lines.println(quote(printed.toString(StandardCharsets.UTF_8)));
            lines.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String quote(String text) {
        StringBuilder out = new StringBuilder("{\"op\":\"mqadmin\",\"output\":\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append("\"}").toString();
    }

    private AdminShell() {
    }
}
