import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Sets how many children a node has ever had, in the data of a server that does not run: FOLDER PATH COUNT. */
public class Counted {
    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        FileTxnSnapLog files = new FileTxnSnapLog(folder, folder);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
        files.restore(tree, sessions, (header, record, digest) -> {});
        tree.getNode(arguments[1]).stat.setCversion(Integer.parseInt(arguments[2]));
        files.save(tree, sessions, true);
        files.close();
    }
}
