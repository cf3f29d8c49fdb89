//! Replies of a server, through a whole node: the first byte selects when it begins to misbehave, the
//! rest is what it then sends.
#![no_main]

use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use libfuzzer_sys::fuzz_target;
use quorlock::{AcquireError, Coordinator, RestartGuard, Wait, redis::Address, transport::{Dial, Stream}};
use quorlock_testkit::{SeededEntropy, TokioClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

fuzz_target!(|input: &[u8]| {
    let Some((how, words)) = input.split_first() else { return };
    let server = Server { honest: usize::from(how % 3), hangs: how & 0x80 != 0, words: words.to_vec() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let coordinator = Coordinator::builder()
            .nodes(["a"])
            .dial(server)
            .clock(TokioClock::new())
            .entropy(SeededEntropy::new(1))
            .restart_guard(RestartGuard::Off)
            .build()
            .expect("it is well configured");
        match coordinator.lock("r").wait(Wait::Never).acquire().await {
            Ok(lease) => drop(lease.release().await),
            Err(AcquireError::Config(error)) => panic!("{error}"),
            Err(error) => {
                let said = error.to_string();
                assert!(said.len() < 4096 && !said.chars().any(char::is_control), "{said:?}");
            }
        }
        coordinator.close(Duration::from_millis(10)).await;
    });
});

#[derive(Clone, Debug)]
struct Server {
    /// How many requests it answers correctly first.
    honest: usize,
    /// Whether it then falls silent, or disconnects.
    hangs: bool,
    words: Vec<u8>,
}

impl Dial for Server {
    fn dial(&self, _: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (near, far) = tokio::io::duplex(16 * 1024);
        tokio::spawn(self.clone().serve(far));
        Box::pin(async { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

impl Server {
    async fn serve(self, mut stream: DuplexStream) -> io::Result<()> {
        // The first and the last request count; those in between may be refused, in a number that may
        // change.
        const FIRST: &str = "%0\r\n";
        const LAST: &str = "$49\r\nrun_id:abc\r\nuptime_in_seconds:9000\r\nrole:master\r\n\r\n";
        let mut heard = [0; 4096];
        for turn in 0..self.honest {
            let length = stream.read(&mut heard).await?;
            if length == 0 {
                return Ok(());
            }
            let more = "-ERR no\r\n".repeat(heard[..length].windows(3).filter(|bytes| bytes == b"\r\n*").count());
            let answer = if turn == 0 { FIRST.to_owned() + &more } else { more + LAST };
            stream.write_all(answer.as_bytes()).await?;
        }
        stream.read(&mut heard).await?;
        stream.write_all(&self.words).await?;
        while self.hangs && stream.read(&mut heard).await? > 0 {}
        Ok(())
    }
}
