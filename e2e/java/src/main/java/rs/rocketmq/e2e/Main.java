package rs.rocketmq.e2e;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The one entry point. {@code produce}, {@code consume}, {@code bench}, {@code transact} and {@code rebalance} run once
 * with their arguments.
 * {@code serve} runs many in one process: each line of standard input is tab-separated,
 * {@code start ID PROGRAM ARG...} or {@code stop ID}, every line printed carries its id, and the end of
 * standard input ends the process.
 *
 * <p>Client threads are not daemons, so the process is halted rather than left to end.
 */
public final class Main {
    public static void main(String[] args) {
        if (args.length > 0 && args[0].equals("serve")) {
            serve();
            Runtime.getRuntime().halt(0);
        }
        Run run = new Run(null);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            run.stop();
            synchronized (run) {
                // Held by the program until it has printed its last line.
            }
        }));
        boolean ok;
        synchronized (run) {
            ok = execute(run, args, 0);
        }
        Runtime.getRuntime().halt(ok ? 0 : 1);
    }

    private static void serve() {
        Map<String, Run> running = new ConcurrentHashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        new Run(null).print(Json.op("serving"));
        try {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split("\t", -1);
                if (words[0].equals("stop")) {
                    Run run = running.get(words[1]);
                    if (run != null) {
                        run.stop();
                    }
                } else if (words[0].equals("start") && words.length > 2) {
                    Run run = new Run(words[1]);
                    running.put(words[1], run);
                    new Thread(() -> {
                        execute(run, words, 2);
                        running.remove(words[1]);
                    }, "program-" + words[1]).start();
                } else {
                    new Run(null).error(new IllegalArgumentException("line not understood: " + line));
                }
            }
        } catch (java.io.IOException e) {
            new Run(null).error(e);
        }
    }

    private static boolean execute(Run run, String[] words, int at) {
        try {
            String program = words.length > at ? words[at] : "";
            switch (program) {
                case "produce":
                    Produce.run(run, words, at + 1);
                    break;
                case "consume":
                    Consume.run(run, words, at + 1);
                    break;
                case "bench":
                    Bench.run(run, words, at + 1);
                    break;
                case "transact":
                    Transact.run(run, words, at + 1);
                    break;
                case "rebalance":
                    Rebalance.run(run, words, at + 1);
                    break;
                default:
                    throw new IllegalArgumentException(
                        "program '" + program + "': expected produce, consume, bench, transact, rebalance or serve");
            }
            return true;
        } catch (Throwable e) {
            run.error(e);
            return false;
        }
    }

    private Main() {
    }
}
