import java.util.HashMap;
import java.util.Map;

/** As much of JSON as the lines have: one object of texts and whole numbers. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Map<String, Object> parse(String line) {
        Json json = new Json(line);
        Map<String, Object> fields = new HashMap<>();
        json.expect('{');
        while (json.next() != '}') {
            String name = json.quoted();
            json.expect(':');
            if (json.next() == '"') {
                fields.put(name, json.quoted());
            } else {
                int from = json.at;
                while (",}".indexOf(json.next()) < 0) {
                    json.at++;
                }
                String word = line.substring(from, json.at).strip();
                if (!word.equals("null")) {
                    fields.put(name, Long.valueOf(word));
                }
            }
            if (json.next() == ',') {
                json.at++;
            }
        }
        return fields;
    }

    private char next() {
        while (text.charAt(at) == ' ') {
            at++;
        }
        return text.charAt(at);
    }

    private void expect(char wanted) {
        if (next() != wanted) {
            throw new IllegalArgumentException("no `" + wanted + "` at " + at + " of " + text);
        }
        at++;
    }

    private String quoted() {
        expect('"');
        StringBuilder found = new StringBuilder();
        while (text.charAt(at) != '"') {
            char c = text.charAt(at++);
            if (c == '\\') {
                c = text.charAt(at++);
                int known = "bfnrt".indexOf(c);
                if (known >= 0) {
                    c = "\b\f\n\r\t".charAt(known);
                } else if (c == 'u') {
                    c = (char) Integer.parseInt(text.substring(at, at + 4), 16);
                    at += 4;
                }
            }
            found.append(c);
        }
        at++;
        return found.toString();
    }

    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
