//! `etcdctl lock`, Go's `concurrency.Mutex` and this library in one queue.

use std::process::{Command, Stdio};

use quorlock::Lease;

use crate::ordered::{Counted, sections};
use crate::queue::process;
use crate::support::newest;

const NAME: &str = "jobs/nightly";

#[tokio::test(flavor = "multi_thread")]
async fn all_clients_of_etcd_stand_in_one_queue() {
    let Some(programs) = newest() else { return };
    let mutex = programs.program("mutex");
    if !mutex.is_file() {
        return eprintln!("skipped: Go's mutex was not built beside {programs}; `scripts/etcd` does");
    }
    // Of each mutex; of `etcdctl`, which is a process for each, a tenth.
    let sections = sections(80);
    let cluster = programs.start(3).await.unwrap();
    let counted = Counted::new();
    let [count, write] = [counted.counter(), counted.log()];
    let mut go = Command::new(mutex);
    go.args([&cluster.endpoints(), NAME, "4", &sections.to_string()]).args([&count, &write]);
    let go = go.stdout(Stdio::piped()).spawn().unwrap();
    let script = r#"v=$(cat "$1"); echo $((v + 1)) > "$1"
        revision=$("$3" --endpoints "$4" get "$ETCD_LOCK_KEY" -w fields | sed -n 's/^"CreateRevision" : //p')
        echo "$revision etcdctl" >> "$2""#;
    let (ctl, endpoints) = (programs.program("etcdctl"), cluster.endpoints());
    let ctls = tokio::task::spawn_blocking(move || {
        for _ in 0..sections / 10 {
            let mut lock = Command::new(&ctl);
            lock.env("ETCDCTL_API", "3").args([
                "--endpoints",
                &endpoints,
                "lock",
                NAME,
                "--",
                "sh",
                "-c",
                script,
                "sh",
            ]);
            let done = lock.args([&count, &write, &ctl]).arg(&endpoints).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
    });
    let revision = async |lease: &Lease| lease.store_revision().unwrap();
    counted.ours(|| process(&cluster), NAME, sections, revision).await;
    ctls.await.unwrap();
    let go = go.wait_with_output().unwrap();
    assert!(go.status.success());
    counted.check(sections * 2 + sections / 10);
    println!("Go: sections, and the same in ms: {}", String::from_utf8_lossy(&go.stdout).trim());
}
