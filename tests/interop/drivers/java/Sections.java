import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Enters critical sections under a lock of Redisson, as ordered by lines on stdin: URL NAME plain|fenced SECTIONS THREADS
 * NUMBER LOG. Each section increments the number in a file, not atomically, and appends a line to the log.
 */
public class Sections {
    private static Path number, log;
    private static String side;

    public static void main(String[] args) throws Exception {
        side = Redisson.class.getPackage().getImplementationVersion();
        if (side == null) side = Path.of(Redisson.class.getProtectionDomain().getCodeSource().getLocation().toURI())
            .getFileName().toString().replaceAll("redisson-|\\.jar", "");
        System.out.println("ready Redisson " + side);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order; (order = orders.readLine()) != null;) {
            String[] words = order.split(" ");
            number = Path.of(words[5]);
            log = Path.of(words[6]);
            RedissonClient client = Redisson.create(config(words[0]));
            System.out.println("connected");
            AtomicInteger left = new AtomicInteger(Integer.parseInt(words[3]));
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(words[4]); i++) {
                threads.add(new Thread(() -> enter(client, words[1], words[2].equals("fenced"), left)));
            }
            for (Thread thread : threads) thread.start();
            for (Thread thread : threads) thread.join();
            client.shutdown(0, 1, java.util.concurrent.TimeUnit.SECONDS);
            System.out.println("done");
        }
        System.exit(0);
    }

    private static void enter(RedissonClient client, String name, boolean fenced, AtomicInteger left) {
        try {
            for (int one; (one = left.getAndDecrement()) > 0;) {
                RLock lock = fenced ? client.getFencedLock(name) : client.getLock(name);
                long token = 0;
                if (fenced) token = ((RFencedLock) lock).lockAndGetToken(); else lock.lock();
                long entered = micros();
                // Some locks are acquired twice, and held until the second unlock.
                boolean twice = one % 10 == 0;
                if (twice) {
                    lock.lock();
                    lock.unlock();
                }
                long value = Long.parseLong(Files.readString(number));
                Thread.yield();
                Files.writeString(number, Long.toString(value + 1));
                String line = side + " " + token + " " + entered + " " + micros() + "\n";
                Files.writeString(log, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                lock.unlock();
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static long micros() {
        return Duration.between(Instant.EPOCH, Instant.now()).toNanos() / 1000;
    }

    /** Configures a client for an address of quorlock: one master, a service of Sentinels, or a cluster. */
    private static Config config(String url) {
        String password = url.replaceAll(".*://:(.*)@.*", "$1"), rest = url.replaceAll(".*@", "");
        String[] hosts = rest.replaceAll("[/?].*", "").split(",");
        for (int i = 0; i < hosts.length; i++) hosts[i] = "redis://" + hosts[i];
        Config config = new Config();
        if (url.startsWith("redis+cluster:")) {
            config.useClusterServers().addNodeAddress(hosts).setPassword(password)
                .setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(8);
        } else if (url.startsWith("redis+sentinel:")) {
            config.useSentinelServers().addSentinelAddress(hosts).setPassword(password).setSentinelPassword(password)
                .setMasterName(rest.replaceAll(".*/|\\?.*", ""))
                .setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(8);
        } else {
            config.useSingleServer().setAddress(hosts[0]).setPassword(password)
                .setConnectionMinimumIdleSize(2).setConnectionPoolSize(8);
        }
        return config;
    }
}
