package rs.rocketmq.e2e;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** Arguments of the form {@code --name value}; a name without a value is a switch. An unknown name is an error. */
final class Options {
    private final Map<String, String> values = new HashMap<>();
    private final Map<String, String> properties = new LinkedHashMap<>();

    Options(String[] args, int from, String... known) {
        java.util.Set<String> names = new java.util.HashSet<>(java.util.Arrays.asList(known));
        for (int i = from; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                throw new IllegalArgumentException("argument '" + args[i] + "': expected --name");
            }
            String name = args[i].substring(2);
            if (!names.contains(name)) {
                throw new IllegalArgumentException("argument --" + name + " is unknown, known: " + names);
            }
            String value = "true";
            if (i + 1 < args.length && !args[i + 1].startsWith("--")) {
                value = args[++i];
            }
            if (name.equals("property")) {
                int equals = value.indexOf('=');
                properties.put(value.substring(0, equals), value.substring(equals + 1));
            } else {
                values.put(name, value);
            }
        }
    }

    String text(String name, String fallback) {
        return values.getOrDefault(name, fallback);
    }

    String required(String name) {
        String value = values.get(name);
        if (value == null || value.isEmpty()) {
            throw new IllegalArgumentException("argument --" + name + " is missing");
        }
        return value;
    }

    long number(String name, long fallback) {
        String value = values.get(name);
        return value == null ? fallback : Long.parseLong(value);
    }

    boolean isSet(String name) {
        return "true".equals(values.get(name));
    }

    /** User properties given as {@code --property name=value}. */
    Map<String, String> properties() {
        return properties;
    }
}
