package rs.rocketmq.e2e;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Runs many mqadmin calls in one process: each line of standard input holds the tab-separated words of one call,
 * and one JSON line holds what it printed on both streams. mqadmin itself is Apache's, unmodified. The line
 * {@code commands} asks for the names of its sub-commands.
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
                commands().clear();
                if (line.equals("commands")) {
                    MQAdminStartup.initCommand();
                    commands().forEach(command -> capture.println(command.commandName()));
                } else {
                    MQAdminStartup.main(line.split("\t", -1));
                }
            } catch (Throwable e) {
                e.printStackTrace(capture);
            }
            capture.flush();
            lines.println(quote(printed.toString(StandardCharsets.UTF_8)));
            lines.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /**
     * The list that each call fills. It is emptied before, as in a process of its own: a command may keep the client of
     * its last call, which that has shut down.
     */
    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws IllegalAccessException {
        // Each version calls the list otherwise.
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (field.getType() == List.class) {
                field.setAccessible(true);
                return (List<SubCommand>) field.get(null);
            }
        }
        throw new IllegalStateException("MQAdminStartup has no list of commands");
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
