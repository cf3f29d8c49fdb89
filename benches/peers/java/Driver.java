import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.IntConsumer;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Drives Redisson. The protocol is described in src/order.rs. */
public final class Driver {
    private static final List<RedissonClient> clients = new ArrayList<>();
    private static Function<String, RLock> locks;

    public static void main(String[] arguments) throws Exception {
        String subject = arguments[0];
        Supplier<Config> configs = subject.equals("redisson-shared") ? sharing() : Config::new;
        for (String node : Arrays.asList(arguments).subList(1, arguments.length)) {
            Config config = configs.get();
            config.useSingleServer().setAddress(node);
            clients.add(Redisson.create(config));
        }
        locks = switch (subject) {
            case "redisson", "redisson-shared" -> Driver::ofQuorum;
            case "redisson-rlock" -> clients.get(0)::getLock;
            default -> throw new IllegalArgumentException("there is no subject " + subject + " in Java");
        };
        String version = Redisson.class.getPackage().getImplementationVersion();
        System.out.printf("{\"version\":\"Redisson %s, Java %s\"}%n", version, System.getProperty("java.version"));
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            Order order = Order.parse(line);
            System.out.println(order.work.equals("cycles") ? cycles(order) : contend(order));
        }
        System.exit(0);
    }

    /** All clients share the same threads: Netty's default number, and Redisson's for one client. */
    private static Supplier<Config> sharing() {
        EventLoopGroup loops = new MultiThreadIoEventLoopGroup(NioIoHandler.newFactory());
        ExecutorService executor = Executors.newFixedThreadPool(new Config().getThreads());
        return () -> new Config().setEventLoopGroup(loops).setExecutor(executor);
    }

    /** The lock of the calling thread: one per server, held with a majority of them. */
    private static RLock ofQuorum(String name) {
        return new RedissonRedLock(clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new));
    }

    private static String cycles(Order order) throws InterruptedException {
        long start = micros();
        long end = start + order.millis * 1000;
        Queue<Long> times = new ConcurrentLinkedQueue<>();
        AtomicLong failures = new AtomicLong();
        runAll(order.tasks, task -> {
            long number = 0;
            for (long began = micros(); began < end; began = micros()) {
                try {
                    RLock lock = locks.apply(order.name + "/" + task + "/" + number++);
                    lock.lock(order.ttlMillis, TimeUnit.MILLISECONDS);
                    lock.unlock();
                    times.add(micros() - began);
                } catch (RuntimeException error) {
                    failures.incrementAndGet();
                }
            }
        });
        return findings(times, times.size(), times.size(), failures.get(), 0, micros() - start, "[]");
    }

    private static String contend(Order order) throws InterruptedException {
        long start = micros();
        boolean timed = order.work.equals("contend");
        long end = timed ? start + order.millis * 1000 : start;
        Queue<Long> handOvers = new ConcurrentLinkedQueue<>();
        AtomicLong ended = new AtomicLong();
        AtomicLong late = new AtomicLong();
        AtomicLong failures = new AtomicLong();
        AtomicLong overlaps = new AtomicLong();
        AtomicBoolean held = new AtomicBoolean();
        List<List<Long>> grants = new ArrayList<>();
        for (int task = 0; task < order.tasks; task++) grants.add(new ArrayList<>());
        runAll(order.tasks, task -> {
            RLock lock = locks.apply(order.name);
            while (true) {
                try {
                    lock.lock(order.ttlMillis, TimeUnit.MILLISECONDS);
                    if (timed && micros() >= end) {
                        late.incrementAndGet();
                        lock.unlock();
                        return;
                    }
                    grants.get(task).add(ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()));
                    if (held.getAndSet(true)) overlaps.incrementAndGet();
                    if (ended.get() != 0) handOvers.add(micros() - ended.get());
                    Thread.sleep(order.holdMillis);
                    ended.set(micros());
                    held.set(false);
                    lock.unlock();
                } catch (RuntimeException | InterruptedException error) {
                    failures.incrementAndGet();
                    continue;
                }
                if (micros() >= end) return;
            }
        });
        long count = 0;
        for (List<Long> began : grants) count += began.size();
        long took = timed ? order.millis * 1000 : micros() - start;
        return findings(handOvers, count, count + late.get(), failures.get(), overlaps.get(), took, grants.toString());
    }

    private static void runAll(int tasks, IntConsumer run) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < tasks; number++) {
            int task = number;
            threads.add(new Thread(() -> run.accept(task)));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) thread.join();
    }

    private static String findings(
            Queue<Long> times, long count, long all, long failures, long overlaps, long micros, String grants) {
        long[] sorted = times.stream().mapToLong(Long::longValue).sorted().toArray();
        long p50 = sorted.length == 0 ? 0 : sorted[sorted.length / 2];
        long p99 = sorted.length == 0 ? 0 : sorted[(int) (sorted.length * 99L / 100)];
        return String.format(
                "{\"count\":%d,\"all\":%d,\"failures\":%d,\"overlaps\":%d,\"micros\":%d,\"p50\":%d,\"p99\":%d,\"grants\":%s}",
                count, all, failures, overlaps, micros, p50, p99, grants);
    }

    private static long micros() {
        return System.nanoTime() / 1000;
    }

    private record Order(String work, int tasks, long millis, long holdMillis, long ttlMillis, String name) {
        static Order parse(String line) {
            return new Order(
                    field(line, "work"),
                    Integer.parseInt(field(line, "tasks")),
                    Long.parseLong(field(line, "millis")),
                    Long.parseLong(field(line, "hold_millis")),
                    Long.parseLong(field(line, "ttl_millis")),
                    field(line, "name"));
        }

        /** Parses an order without a library: orders are flat and contain plain text only. */
        private static String field(String line, String name) {
            var found = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(line);
            if (!found.find()) throw new IllegalArgumentException(name + " is missing in " + line);
            return found.group(1);
        }
    }
}
