//! A whole node with a misbehaving server. The first byte of the input says after how many requests the server
//! misbehaves and whether it hangs then; the rest is its answer.
#![no_main]

use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use libfuzzer_sys::fuzz_target;
use quorlock::{
    AcquireError, Coordinator, RestartGuard, Wait,
    redis::Address,
    transport::{Dial, Stream},
};
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
            .expect("a valid configuration");
        match coordinator.lock("r").wait(Wait::Never).acquire().await {
            Ok(lease) => drop(lease.release().await),
            Err(AcquireError::Config(error)) => panic!("{error}"),
            Err(error) => {
                let message = error.to_string();
                assert!(message.len() < 4096 && !message.chars().any(char::is_control), "{message:?}");
            }
        }
        coordinator.close(Duration::from_millis(10)).await;
    });
});

#[derive(Clone, Debug)]
struct Server {
    /// How many requests it answers correctly.
    honest: usize,
    /// Whether it stops answering afterwards, or closes the connection.
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
        // Only the first and the last request need an answer. The others, whose number may change, may be refused.
        const FIRST: &str = "%0\r\n";
        const LAST: &str = "$49\r\nrun_id:abc\r\nuptime_in_seconds:9000\r\nrole:master\r\n\r\n";
        let mut heard = [0; 4096];
        for turn in 0..self.honest {
            let length = stream.read(&mut heard).await?;
            if length == 0 {
                return Ok(());
            }
            let more =
                "-ERR no\r\n".repeat(heard[..length].windows(3).filter(|bytes| bytes == b"\r\n*").count());
            let answer = if turn == 0 { FIRST.to_owned() + &more } else { more + LAST };
            stream.write_all(answer.as_bytes()).await?;
        }
        stream.read(&mut heard).await?;
        stream.write_all(&self.words).await?;
        while self.hangs && stream.read(&mut heard).await? > 0 {}
        Ok(())
    }
}
