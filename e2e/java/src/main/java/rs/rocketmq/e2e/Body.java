package rs.rocketmq.e2e;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** Bodies that name their message, so that a mixed-up body shows, and their digest. */
final class Body {
    private static final int MAX_SHOWN_BYTES = 256;

    /** {@code key|} followed by letters, {@code size} bytes in all (more when the key alone is longer). */
    static byte[] make(String key, int size) {
        byte[] head = (key + "|").getBytes(StandardCharsets.UTF_8);
        byte[] body = java.util.Arrays.copyOf(head, Math.max(size, head.length));
        for (int i = head.length; i < body.length; i++) {
            body[i] = (byte) ('a' + i * 7 % 26);
        }
        return body;
    }

    static String sha256(byte[] body) {
        try {
            StringBuilder hex = new StringBuilder(64);
            for (byte b : MessageDigest.getInstance("SHA-256").digest(body)) {
                hex.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
            }
            return hex.toString();
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    /** The body as text when it is short UTF-8, else null. */
    static String text(byte[] body) {
        if (body.length > MAX_SHOWN_BYTES) {
            return null;
        }
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(body)).toString();
        } catch (CharacterCodingException e) {
            return null;
        }
    }

    private Body() {
    }
}
