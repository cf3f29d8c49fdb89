import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collections;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Sections under Curator's mutex: CONNECT PATH THREADS SECTIONS COUNTER LOG. Each adds one to a number in a file, by reading and writing it. */
public class Sections {
    public static void main(String[] arguments) throws Exception {
        String path = arguments[1];
        int threads = Integer.parseInt(arguments[2]), sections = Integer.parseInt(arguments[3]);
        Path counter = Path.of(arguments[4]), log = Path.of(arguments[5]);
        AtomicInteger left = new AtomicInteger(sections);
        List<Long> waits = Collections.synchronizedList(new ArrayList<>());
        List<Thread> all = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            Thread working = new Thread(() -> {
                // A session for each, as for each process.
                try (CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(1000))) {
                    client.start();
                    InterProcessMutex mutex = new InterProcessMutex(client, path);
                    while (left.getAndDecrement() > 0) {
                        long asked = System.nanoTime();
                        mutex.acquire();
                        waits.add(System.nanoTime() - asked);
                        try {
                            int number = Integer.parseInt(Files.readString(counter).trim());
                            Files.writeString(counter, Integer.toString(number + 1));
                            String first = mutex.getParticipantNodes().iterator().next();
                            String sequence = first.substring(first.length() - 10);
                            Files.writeString(log, sequence + " curator\n", StandardOpenOption.APPEND);
                        } finally {
                            mutex.release();
                        }
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            working.start();
            all.add(working);
        }
        for (Thread working : all) {
            working.join();
        }
        Collections.sort(waits);
        System.out.println(sections + " " + waits.get(waits.size() / 2) / 1000 + " " + waits.get(waits.size() * 99 / 100) / 1000);
    }
}
