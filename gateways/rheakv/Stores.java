import com.alipay.sofa.jraft.rhea.client.DefaultRheaKVStore;
import com.alipay.sofa.jraft.rhea.options.configured.PlacementDriverOptionsConfigured;
import com.alipay.sofa.jraft.rhea.options.configured.RheaKVStoreOptionsConfigured;
import com.alipay.sofa.jraft.rhea.options.configured.RocksDBOptionsConfigured;
import com.alipay.sofa.jraft.rhea.options.configured.StoreEngineOptionsConfigured;
import com.alipay.sofa.jraft.rhea.storage.StorageType;
import com.alipay.sofa.jraft.rhea.util.concurrent.DistributedLock;
import com.alipay.sofa.jraft.util.Endpoint;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** For the tests: three stores in one process, which then counts in a file under RheaKV's own lock, as lines on stdin say. */
public final class Stores {
    public static void main(String[] args) throws Exception {
        String folder = args[0];
        String[] ports = args[1].split(",");
        List<DefaultRheaKVStore> stores = new ArrayList<>();
        String all = "127.0.0.1:" + String.join(",127.0.0.1:", ports);
        for (String port : ports) {
            var disk = RocksDBOptionsConfigured.newConfigured().withDbPath(folder + "/db" + port).config();
            var engine = StoreEngineOptionsConfigured.newConfigured().withStorageType(StorageType.RocksDB)
                    .withRocksDBOptions(disk).withRaftDataPath(folder + "/raft" + port)
                    .withServerAddress(new Endpoint("127.0.0.1", Integer.parseInt(port))).config();
            var driver = PlacementDriverOptionsConfigured.newConfigured().withFake(true).config();
            var options = RheaKVStoreOptionsConfigured.newConfigured().withClusterName("quorlock").withInitialServerList(all)
                    .withStoreEngineOptions(engine).withPlacementDriverOptions(driver).config();
            DefaultRheaKVStore store = new DefaultRheaKVStore();
            if (!store.init(options)) {
                throw new IllegalStateException("a store does not start");
            }
            stores.add(store);
        }
        DefaultRheaKVStore store = serving(stores);
        System.out.println("serving");
        var lines = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("hold")) {
                DistributedLock<byte[]> lock = store.getDistributedLock(words[1], 20, TimeUnit.SECONDS);
                lock.tryLock("the Java program".getBytes());
                System.out.println("held");
                lines.readLine();
                lock.unlock();
                System.out.println("released");
                continue;
            }
            // count NAME FILE TIMES
            Path file = Path.of(words[2]);
            for (int i = 0; i < Integer.parseInt(words[3]); i++) {
                DistributedLock<byte[]> lock = store.getDistributedLock(words[1], 20, TimeUnit.SECONDS);
                while (!lock.tryLock()) {
                    Thread.sleep(1);
                }
                int count = Integer.parseInt(Files.readString(file).strip());
                Files.writeString(file, String.valueOf(count + 1));
                lock.unlock();
                Thread.sleep(1);
            }
            System.out.println("counted");
        }
        System.exit(0);
    }

    /** The leader of the region is at one of them. */
    private static DefaultRheaKVStore serving(List<DefaultRheaKVStore> stores) throws InterruptedException {
        while (true) {
            for (DefaultRheaKVStore store : stores) {
                try {
                    store.bPut("ready", "yes".getBytes());
                    return store;
                } catch (RuntimeException notYet) {
                    Thread.sleep(50);
                }
            }
        }
    }
}
