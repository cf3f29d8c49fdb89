//! What users of other tools type first: it works, or the error names the line to type, and that works.

use quorlock_testkit::Servers;

use crate::support::{Ended, Quorlock, servers};

/// What becomes of a line.
#[derive(Clone, Copy)]
enum Then {
    /// It works, and prints this.
    Works(&'static str),
    /// It is refused, and the error names this line, which works.
    Type(&'static str),
    /// It is refused, and the error names this line, which is not run here.
    Names(&'static str),
}

use Then::{Names, Type, Works};

/// The line after the word `quorlock`; `P` is `printf ok`, which prints what shows that the command ran.
const LINES: [(&str, Then); 82] = [
    // flock(1)
    ("run -n job P", Works("ok")),
    ("run -w 5 job P", Works("ok")),
    ("run -E 9 -w 1.5 job P", Works("ok")),
    ("run job -c 'printf ok'", Works("ok")),
    ("run -s job P", Type("quorlock run --shared job P")),
    ("run -x job P", Type("quorlock run job P")),
    ("run -en job P", Type("quorlock run -n job P")),
    ("run -u job P", Type("quorlock run job P")),
    ("run -o job P", Type("quorlock run job P")),
    ("run -F job P", Type("quorlock run job P")),
    ("run --nonblock job P", Type("quorlock run --no-wait job P")),
    ("-n /tmp/job P", Type("quorlock run -n /tmp/job P")),
    // timeout(1)
    ("run --max-hold 10 job P", Works("ok")),
    ("run --max-hold 1m job P", Works("ok")),
    ("run -k 5 job P", Works("ok")),
    ("run --kill-after=5s job P", Works("ok")),
    ("run -v job P", Works("ok")),
    ("run --verbose job P", Works("ok")),
    ("run -s KILL job P", Type("quorlock run job P")),
    ("run -s 9 job P", Type("quorlock run job P")),
    ("run --signal=INT job P", Type("quorlock run job P")),
    ("run --preserve-status job P", Type("quorlock run job P")),
    ("run --foreground -k 5 job P", Type("quorlock run -k 5 job P")),
    ("run --timeout 10 job P", Type("quorlock run --wait 10 job P")),
    // consul lock
    ("lock service/job P", Works("ok")),
    ("lock -n=3 job P", Type("quorlock lock --permits 3 job P")),
    ("lock -n 3 job P", Type("quorlock lock --permits 3 job P")),
    ("lock -n 3 -try 1s job P", Type("quorlock lock --permits 3 --wait 1s job P")),
    ("lock -try=2s job P", Type("quorlock lock --wait 2s job P")),
    ("lock -try 2s job P", Type("quorlock lock --wait 2s job P")),
    ("lock -timeout=5s job P", Type("quorlock lock --wait 5s job P")),
    ("lock -name=import job P", Type("quorlock lock --label import job P")),
    ("lock -verbose job P", Type("quorlock lock --verbose job P")),
    ("lock -shell=false job P", Type("quorlock lock job P")),
    ("lock -pass-stdin job P", Type("quorlock lock job P")),
    ("lock -child-exit-code job P", Type("quorlock lock job P")),
    ("lock -monitor-retry=3 job P", Type("quorlock lock job P")),
    ("lock -n=3 -try=1s -verbose job P", Type("quorlock lock --permits 3 --wait 1s --verbose job P")),
    ("lock -http-addr=http://h:8500 job P", Type("quorlock lock job P")),
    ("lock -http-addr http://h:8500 -try 1s job P", Type("quorlock lock --wait 1s job P")),
    ("lock -token=s3cret job P", Type("quorlock lock job P")),
    ("lock -token-file=f job P", Names("quorlock lock --password-file f job P")),
    ("lock -ca-file=ca.pem job P", Names("quorlock lock --tls-ca ca.pem job P")),
    ("lock -client-cert=c -client-key k job P", Names("quorlock lock --tls-cert c --tls-key k job P")),
    ("lock -tls-server-name=n job P", Names("quorlock lock --tls-server-name n job P")),
    ("lock -name=job -- P", Type("quorlock lock job -- P")),
    // etcdctl lock
    ("lock job P", Works("ok")),
    ("lock --ttl=10 job P", Works("ok")),
    ("lock --ttl 10 job P", Works("ok")),
    ("lock job", Names("quorlock hold job")),
    ("elect job P", Works("ok")),
    ("--endpoints=h:2379,i:2379 lock job P", Names("quorlock --nodes etcd://h:2379,i:2379 lock job P")),
    ("lock --endpoints=https://h:2379 job P", Names("quorlock lock --nodes etcds://h:2379 job P")),
    ("lock --cacert=ca.pem job P", Names("quorlock lock --tls-ca ca.pem job P")),
    ("lock --user=ann:secret job P", Names("quorlock lock --username ann job P")),
    ("lock --command-timeout=2s job P", Type("quorlock lock --node-timeout 2s job P")),
    ("lock -w json job P", Type("quorlock lock --json job P")),
    ("lock --write-out=json job P", Type("quorlock lock --json job P")),
    // The shell
    ("job -- P", Type("quorlock run job -- P")),
    ("job P", Type("quorlock run job P")),
    ("acquire job P", Type("quorlock run job P")),
    ("acquire job", Names("quorlock hold job")),
    ("trylock job P", Type("quorlock run --no-wait job P")),
    ("inspect job", Names("quorlock status job")),
    ("ping", Names("quorlock doctor")),
    ("history job", Names("quorlock log job")),
    ("campaign job P", Type("quorlock elect job P")),
    ("with job -- P", Type("quorlock run job -- P")),
    ("run job", Names("quorlock hold job")),
    ("run job --", Names("write the command after `--`")),
    ("elect job --", Names("write the command after `--`")),
    ("run --", Names("write the name of the lock before `--`")),
    ("run -- true", Names("write the name of the lock before `--`")),
    ("run job 'printf ok | cat'", Names("use -c")),
    ("run job cd /tmp", Names("use -c")),
    ("run job A=1 P", Names("write `env` before it")),
    ("run --once-per day job P", Names("write `1day`")),
    ("run --name job -- P", Type("quorlock run job -- P")),
    ("run --key job -- P", Type("quorlock run job -- P")),
    // redis-cli
    ("run -h 10.0.0.1 -p 6379 job P", Names("--nodes redis://HOST:PORT")),
    ("hold -h10.0.0.1 job", Names("--nodes redis://HOST:PORT")),
    ("version", Type("quorlock --version")),
];

#[tokio::test]
async fn the_first_lines_of_other_tools_work_or_are_answered_by_the_line_to_type() {
    let Some(servers) = servers(3).await else { return };
    for (line, then) in LINES {
        let ended = typed(&servers, line).await;
        match then {
            Works(output) => assert_eq!(ended.expect(0).stdout, output, "{line}"),
            Names(cure) => {
                assert!(refuses(&ended, cure), "`{line}` names `{cure}`: {ended:?}");
            }
            Type(cure) => {
                let cure = cure.replace('P', "printf ok");
                assert!(refuses(&ended, &format!("type `{cure}`")), "`{line}` names `{cure}`: {ended:?}");
                let words = cure.strip_prefix("quorlock ").expect("a line of quorlock");
                let accepted = typed(&servers, words).await.expect(0);
                assert!(words == "--version" || accepted.stdout == "ok", "{cure}: {accepted:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_question_is_answered_by_the_help() {
    for words in [
        &["-h"][..],
        &["run", "-h"],
        &["-h", "run"],
        &["run", "-h", "job"],
        &["run", "-help"],
        &["run", "job", "--help"],
    ] {
        let help = Quorlock::new(words).end().await.expect(0);
        assert!(help.stdout.contains("Usage: quorlock") && help.stderr.is_empty(), "{words:?}: {help:?}");
    }
}

/// Whether it ran nothing, and names the cure and no other lock.
fn refuses(ended: &Ended, cure: &str) -> bool {
    let cure = cure.replace(" P", " printf ok");
    ended.code != Some(0)
        && ended.stdout.is_empty()
        && ended.stderr.contains(&cure)
        && !ended.stderr.contains("use '--")
}

/// What is typed into a shell after the word `quorlock`.
async fn typed(servers: &Servers, line: &str) -> Ended {
    let line = line.replace(" P", " printf ok");
    let through_shell = format!("exec \"$0\" {line}");
    Quorlock::new([""; 0]).on(servers).through("sh", &["-c", &through_shell]).end().await
}
