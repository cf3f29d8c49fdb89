import com.alipay.sofa.jraft.rhea.client.DefaultRheaKVStore;
import com.alipay.sofa.jraft.rhea.options.configured.MultiRegionRouteTableOptionsConfigured;
import com.alipay.sofa.jraft.rhea.options.configured.PlacementDriverOptionsConfigured;
import com.alipay.sofa.jraft.rhea.options.configured.RheaKVStoreOptionsConfigured;
import com.alipay.sofa.jraft.rhea.util.concurrent.DistributedLock.Acquirer;
import com.alipay.sofa.jraft.rhea.util.concurrent.DistributedLock.Owner;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * A node of quorlock on RheaKV: {@code exec:java?arg=-cp&arg=…&arg=Gateway&arg=CLUSTER&arg=HOST:PORT,…&cluster=yes}.
 *
 * <p>A lock is RheaKV's own lock of that name, so a Java program with {@code DistributedLock} and this exclude each other. The
 * owner's id is the token. Numbers are this gateway's own: RheaKV's count for a whole region, and a refusal has none.
 *
 * <p>RheaKV has no way to look at a lock. To keep the lease of a stranger is refused, names the owner, and changes nothing.
 */
public final class Gateway {
    private static final int LIMIT_MS = 4000;
    /** Who looks. Its lease would be this short, but it never gets one. */
    private static final String LOOKER = "quorlock-looks";
    private static final String OWN = "quorlock/";

    private final DefaultRheaKVStore store;
    /** Until when late requests of a token are taken back, in nanoseconds. */
    private final Map<String, Long> cancelled = new ConcurrentHashMap<>();
    /** The numbers of the tokens that this process holds: what others see of them is the counter. */
    private final Map<String, Long> numbers = new ConcurrentHashMap<>();
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private Gateway(DefaultRheaKVStore store) {
        this.store = store;
    }

    public static void main(String[] args) throws Exception {
        // What the library prints goes where it is logged.
        PrintStream answers = System.out;
        System.setOut(System.err);
        DefaultRheaKVStore store = new DefaultRheaKVStore();
        // One region, which is what a cluster without a placement driver has.
        var regions = MultiRegionRouteTableOptionsConfigured.newConfigured().withInitialServerList(-1L, args[1]).config();
        var driver = PlacementDriverOptionsConfigured.newConfigured()
                .withFake(true).withRegionRouteTableOptionsList(regions).config();
        var options = RheaKVStoreOptionsConfigured.newConfigured()
                .withClusterName(args[0]).withInitialServerList(args[1]).withPlacementDriverOptions(driver).config();
        if (!store.init(options)) {
            throw new IllegalStateException("cannot connect to " + args[1]);
        }
        System.setOut(answers);
        Gateway gateway = new Gateway(store);
        System.setOut(System.err);
        try {
            gateway.serve();
        } catch (Exception error) {
            // The threads of the library would go on.
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private void serve() throws Exception {
        String note = UUID.randomUUID() + " " + System.currentTimeMillis();
        byte[] before = await(store.putIfAbsent(bytes(OWN + "identity"), bytes(note)));
        String[] identity = (before == null ? note : text(before)).split(" ");
        long age = Math.max(0, System.currentTimeMillis() - Long.parseLong(identity[1]));
        // RheaKV refuses leases below a second's half, and its deadlines are the leader's calendar.
        say("{\"quorlock\":1,\"identity\":" + Json.quote(identity[0]) + ",\"age_ms\":" + age + ",\"least_ttl_ms\":1000}");
        // A key is never asked for twice at a time, so any thread may answer.
        ExecutorService threads = Executors.newFixedThreadPool(32);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> asked = Json.parse(line);
            threads.execute(() -> answer(asked));
        }
        threads.shutdown();
        threads.awaitTermination(LIMIT_MS, TimeUnit.MILLISECONDS);
    }

    private void answer(Map<String, Object> asked) {
        String id = "{\"id\":" + asked.get("id");
        try {
            say(id + "," + carryOut(asked) + "}");
        } catch (Exception error) {
            // Whether RheaKV has carried it out is not known.
            say(id + ",\"error\":" + Json.quote(String.valueOf(error)) + ",\"maybe\":true}");
        }
    }

    private String carryOut(Map<String, Object> asked) throws Exception {
        String key = (String) asked.get("key");
        String token = (String) asked.get("token");
        String counter = (String) asked.get("counter");
        long ttl = (Long) asked.getOrDefault("ttl_ms", 0L);
        Long number = (Long) asked.get("number");
        if (key.startsWith(OWN)) {
            return "\"error\":\"names that begin with `quorlock/` are this gateway's own\"";
        }
        switch ((String) asked.get("do")) {
            case "acquire":
                return acquire(key, token, ttl, counter, number);
            case "renew":
                return renew(key, token, ttl, counter, number);
            case "write_back":
                return writeBack(key, token, counter, number);
            case "release":
                return is(release(key, token) ? "granted" : "free", null);
            case "cancel":
                return cancel(key, token, ttl);
            case "inspect":
                Owner owner = look(key);
                Long its = owner == null ? null : numbers.get(owner.getId());
                Long shown = its == null ? counter(counter) : its;
                return owner == null ? is("free", shown) : held(owner, shown);
            default:
                return "\"error\":\"unknown request\"";
        }
    }

    private String acquire(String key, String token, long ttl, String counter, Long number) throws Exception {
        if (isCancelled(token)) {
            Owner owner = look(key);
            return owner == null ? is("free", null) : held(owner, null);
        }
        Owner owner = lock(key, token, ttl);
        // Where an answer was lost, the lock is this token's already; a second try is refused, as it has no number of RheaKV's.
        if (!owner.isSuccess() && !owner.getId().equals(token)) {
            return held(owner, number == null ? null : counter(counter));
        }
        if (number == null) {
            return is("granted", null);
        }
        numbers.put(token, raise(counter, number, true));
        return is("granted", numbers.get(token));
    }

    private Owner lock(String key, String token, long ttl) throws Exception {
        Acquirer acquirer = new Acquirer(token, ttl);
        acquirer.setContext(bytes(token));
        return await(store.tryLockWith(bytes(key), false, acquirer));
    }

    private String renew(String key, String token, long ttl, String counter, Long number) throws Exception {
        Owner owner = look(key);
        if (owner != null && !owner.getId().equals(token)) {
            return held(owner, number == null ? null : counter(counter));
        }
        if (owner == null) {
            if (isCancelled(token)) {
                return is("free", null);
            }
            owner = lock(key, token, ttl);
            if (!owner.isSuccess() && !owner.getId().equals(token)) {
                return held(owner, null);
            }
            if (number != null) {
                raise(counter, number, false);
                numbers.put(token, number);
            }
            return is("restored", null);
        }
        // To keep the lease sets its end, also to an earlier one.
        if (owner.getRemainingMillis() < ttl) {
            Acquirer acquirer = numbered(key, token, ttl);
            if (acquirer == null || !await(store.tryLockWith(bytes(key), true, acquirer)).isSuccess()) {
                // It has ended in between.
                return renew(key, token, ttl, counter, number);
            }
        }
        return is("granted", null);
    }

    private String writeBack(String key, String token, String counter, long number) throws Exception {
        Owner owner = look(key);
        if (owner == null) {
            return is("free", null);
        }
        if (!owner.getId().equals(token)) {
            return held(owner, null);
        }
        Long stands = counter(counter);
        if (stands != null && stands >= number) {
            return is("ahead", stands);
        }
        raise(counter, number, false);
        numbers.put(token, number);
        return is("granted", number);
    }

    private boolean release(String key, String token) throws Exception {
        numbers.remove(token);
        Acquirer acquirer = numbered(key, token, 1);
        return acquirer != null && await(store.releaseLockWith(bytes(key), acquirer)).isSuccess();
    }

    /**
     * Returns the acquirer of a token that owns a lock, with the number of RheaKV's that belongs to it; null if it does not own
     * it. An answer with that number may have been lost. An unlock without it is refused, and the refusal names it.
     */
    private Acquirer numbered(String key, String token, long ttl) throws Exception {
        Acquirer acquirer = new Acquirer(token, ttl);
        acquirer.setContext(bytes(token));
        Owner owner = await(store.releaseLockWith(bytes(key), acquirer));
        if (owner.isSuccess() || !token.equals(owner.getId())) {
            return null;
        }
        acquirer.setFencingToken(owner.getFencingToken());
        return acquirer;
    }

    /** A request whose answer never came may still be carried out: it is looked for until none can be. */
    private String cancel(String key, String token, long linger) throws Exception {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(linger);
        cancelled.put(token, until);
        boolean released = release(key, token);
        Thread looks = new Thread(() -> {
            for (long pause = 50; System.nanoTime() - until < 0; pause = Math.min(pause * 2, 2000)) {
                try {
                    Thread.sleep(pause);
                    release(key, token);
                } catch (InterruptedException ended) {
                    return;
                } catch (Exception later) {
                    // It is tried again.
                }
            }
            cancelled.remove(token);
        });
        looks.setDaemon(true);
        looks.start();
        return is(released ? "granted" : "free", null);
    }

    private boolean isCancelled(String token) {
        Long until = cancelled.get(token);
        return until != null && System.nanoTime() - until < 0;
    }

    /** Returns the owner of a lock; null if it has none. */
    private Owner look(String key) throws Exception {
        Owner seen = await(store.tryLockWith(bytes(key), true, new Acquirer(LOOKER, 1000)));
        return seen.isSuccess() || LOOKER.equals(seen.getId()) || seen.getRemainingMillis() <= 0 ? null : seen;
    }

    private Long counter(String counter) throws Exception {
        byte[] value = await(store.get(bytes(OWN + counter)));
        return value == null ? null : Long.valueOf(text(value));
    }

    /** Raises a counter to a number; or, if it draws, to one more than it stands at, if that is more. */
    private long raise(String counter, long number, boolean draws) throws Exception {
        byte[] key = bytes(OWN + counter);
        while (true) {
            byte[] value = await(store.get(key));
            long stands = value == null ? 0 : Long.parseLong(text(value));
            long next = Math.max(number, draws ? stands + 1 : stands);
            if (next == stands) {
                return next;
            }
            boolean done = value == null
                    ? await(store.putIfAbsent(key, bytes(String.valueOf(next)))) == null
                    : await(store.compareAndPut(key, value, bytes(String.valueOf(next))));
            if (done) {
                return next;
            }
        }
    }

    private static String is(String what, Long number) {
        return "\"is\":\"" + what + "\"" + (number == null ? "" : ",\"number\":" + number);
    }

    /** Another program's owner is a random id, and what it has written beside it. */
    private static String held(Owner owner, Long number) {
        byte[] context = owner.getContext();
        String beside = context == null || context.length == 0 ? "" : text(context);
        String token = beside.isEmpty() || beside.equals(owner.getId()) ? owner.getId() : owner.getId() + " " + beside;
        return is("held", number) + ",\"token\":" + Json.quote(token) + ",\"left_ms\":" + owner.getRemainingMillis();
    }

    private static <T> T await(CompletableFuture<T> future) throws Exception {
        return future.get(LIMIT_MS, TimeUnit.MILLISECONDS);
    }

    private void say(String line) {
        synchronized (out) {
            out.println(line);
            out.flush();
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
