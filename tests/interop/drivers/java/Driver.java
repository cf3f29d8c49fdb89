import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Drives Redisson's lock over several servers. README.md describes the protocol. */
public final class Driver {
    private static final List<RedissonClient> clients = new ArrayList<>();
    private static final Map<String, RLock> held = new HashMap<>();

    public static void main(String[] nodes) throws Exception {
        for (String node : nodes) {
            Config config = new Config();
            config.useSingleServer().setAddress(node).setConnectionMinimumIdleSize(1);
            clients.add(Redisson.create(config));
        }
        String version = Redisson.class.getPackage().getImplementationVersion();
        System.out.printf("ready Redisson %s, Java %s%n", version, System.getProperty("java.version"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" ")).replace('\n', ' '));
        }
        System.exit(0);
    }

    private static String answer(String[] words) {
        try {
            switch (words[0]) {
                case "acquire":
                    return acquire(words[1], Long.parseLong(words[2]));
                case "release":
                    held.remove(words[1]).unlock();
                    return "released";
                default:
                    return "refused Redisson has no call for " + words[0];
            }
        } catch (Exception error) {
            return "refused " + error;
        }
    }

    private static String acquire(String resource, long ttlMillis) throws InterruptedException {
        RLock[] locks = clients.stream().map(client -> client.getLock(resource)).toArray(RLock[]::new);
        RLock lock = new RedissonRedLock(locks);
        if (!lock.tryLock(0, ttlMillis, TimeUnit.MILLISECONDS)) return "refused held by another client";
        held.put(resource, lock);
        // It stores a hash field, whose name is not exposed.
        return "acquired -";
    }
}
