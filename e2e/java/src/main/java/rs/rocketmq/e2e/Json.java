package rs.rocketmq.e2e;

import java.util.Map;

/** One flat JSON object, written field by field. The two client versions bring different JSON libraries, so none is used. */
final class Json {
    private final StringBuilder out = new StringBuilder(256).append('{');
    private boolean first = true;

    static Json op(String op) {
        return new Json().put("op", op);
    }

    Json put(String name, String value) {
        name(name);
        if (value == null) {
            out.append("null");
        } else {
            quote(value);
        }
        return this;
    }

    Json put(String name, long value) {
        name(name);
        out.append(value);
        return this;
    }

    Json put(String name, double value) {
        name(name);
        out.append(String.format(java.util.Locale.ROOT, "%.3f", value));
        return this;
    }

    Json put(String name, boolean value) {
        name(name);
        out.append(value);
        return this;
    }

    Json put(String name, Map<String, String> values) {
        name(name);
        out.append('{');
        boolean firstValue = true;
        for (Map.Entry<String, String> entry : values.entrySet()) {
            if (!firstValue) {
                out.append(',');
            }
            firstValue = false;
            quote(entry.getKey());
            out.append(':');
            quote(entry.getValue());
        }
        out.append('}');
        return this;
    }

    Json put(String name, Iterable<String> values) {
        name(name);
        out.append('[');
        boolean firstValue = true;
        for (String value : values) {
            if (!firstValue) {
                out.append(',');
            }
            firstValue = false;
            quote(value);
        }
        out.append(']');
        return this;
    }

    String end() {
        return out.append('}').toString();
    }

    private void name(String name) {
        if (!first) {
            out.append(',');
        }
        first = false;
        quote(name);
        out.append(':');
    }

    private void quote(String value) {
        out.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || Character.isSurrogate(c) || c == 0x7f) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
