import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;

/** Increments the number in a file, with a lock of ShedLock or without one, until it reaches a total. */
public class ShedLock {
    public static void main(String[] args) throws Exception {
        String url = args[0], name = args[1], locking = args[5];
        Path file = Path.of(args[2]);
        int total = Integer.parseInt(args[3]), threads = Integer.parseInt(args[4]);
        AtomicInteger sections = new AtomicInteger();
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                SingleConnectionDataSource source = new SingleConnectionDataSource(url, true);
                JdbcTemplateLockProvider provider = new JdbcTemplateLockProvider(
                    JdbcTemplateLockProvider.Configuration.builder()
                        .withJdbcTemplate(new JdbcTemplate(source)).usingDbTime().build());
                try {
                    boolean more = true;
                    while (more) {
                        if (locking.equals("unlocked")) {
                            more = section(file, total, sections);
                            continue;
                        }
                        Optional<SimpleLock> lock = provider.lock(new LockConfiguration(
                            Instant.now(), name, Duration.ofMinutes(5), Duration.ZERO));
                        if (lock.isPresent()) {
                            more = section(file, total, sections);
                            lock.get().unlock();
                        }
                        // A client of ShedLock does not wait: retry, so that others get turns.
                        Thread.sleep(5);
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
                source.destroy();
            });
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) thread.join();
        System.out.println("sections " + sections.get());
        System.exit(0);
    }

    /** Reads and writes the number, not atomically. Returns whether there is more to do. */
    private static boolean section(Path file, int total, AtomicInteger sections) throws IOException {
        String text = Files.readString(file);
        int number = text.isEmpty() ? 0 : Integer.parseInt(text);
        // If increments are lost, the number may never reach the total.
        if (number >= total || sections.get() >= total) return false;
        Thread.yield();
        Files.writeString(file, Integer.toString(number + 1));
        sections.incrementAndGet();
        return true;
    }
}
