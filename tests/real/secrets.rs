//! Passwords and tokens never appear in debug output, errors, logs or reports.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use quorlock::runtime::Mutex;
use quorlock::{
    Coordinator, RestartGuard, Wait,
    redis::{Address, RedisNode},
};
use quorlock_testkit::{Servers, until};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Event, Metadata, Subscriber};

const PASSWORD: &str = "Qq7Zz9-open";
const WRONG: &str = "Ww8Xx7-shut";

/// Captures everything that is logged, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn text(&self) -> String {
        self.0.lock().clone()
    }
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = self.0.lock();
        writeln!(text, "{field}={value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn hidden(what: &str, text: &str) {
    for secret in [PASSWORD, WRONG, "Qq7Zz9", "Ww8Xx7"] {
        assert!(!text.contains(secret), "{what} shows a password: {text}");
    }
}

fn shown(value: &impl Debug) -> String {
    format!("{value:?}\n{value:#?}")
}

fn coordinator(urls: &[String], password: &str) -> Coordinator {
    let builder = Coordinator::builder().nodes(urls).password(password).username("default");
    hidden("a builder", &shown(&builder));
    builder.restart_guard(RestartGuard::Off).build().unwrap()
}

/// Single-threaded, so that everything is logged on this thread.
#[tokio::test]
async fn nothing_that_is_printed_logged_or_reported_shows_a_password_or_a_token() {
    let log = Log::default();
    // A lone subscriber would miss events that other threads reach first: `tracing` would then ask only the
    // subscriber of that thread.
    tracing::subscriber::set_global_default(NoSubscriber::default()).unwrap();
    let _guard = tracing::subscriber::set_default(log.clone());
    let servers = Servers::setup().password(PASSWORD).start(3).await.unwrap();
    let bare: Vec<_> = servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();

    // The healthy case: what is held, watched, and inspected.
    for coordinator in [coordinator(&bare, PASSWORD), coordinator(&servers.urls(), WRONG)] {
        let lock = coordinator.lock("orders/42");
        let lease = lock.acquire().await.unwrap();
        // A quorum has it, and this server perhaps a moment later.
        let mut answer = String::new();
        until("the token is stored", async || {
            answer = servers[0].command(&["GET", "orders/42"]).await.unwrap().to_string();
            answer.contains(' ')
        })
        .await;
        let secret = answer.split(' ').next().unwrap().to_owned();
        assert!(secret.len() >= 16, "a token of 128 bits, in any form: {answer}");
        let report = lock.inspect().await.unwrap();
        let refused = coordinator.lock("orders/42").wait(Wait::Never).acquire().await.unwrap_err();
        let examination = coordinator.doctor().await;
        for (what, text) in [
            ("a coordinator", shown(&coordinator)),
            ("a lock", shown(&lock)),
            ("a lease", shown(&lease) + &shown(&lease.watch())),
            ("a ballot", shown(&report) + &report.to_string()),
            ("a refusal", shown(&refused) + &refused.to_string()),
            ("a check-up", shown(&examination)),
            ("the warnings", shown(&coordinator.warnings())),
        ] {
            hidden(what, &text);
            assert!(!text.contains(&secret), "{what} shows a token: {text}");
        }
        lease.release().await.unwrap();
        assert!(!log.text().contains(&secret), "a token is logged");
    }

    // The failing case.
    let closed = ["redis://127.0.0.1:1".to_owned()];
    for (urls, password) in [(&bare[..], WRONG), (&closed[..], PASSWORD)] {
        let coordinator = coordinator(urls, password);
        let error = coordinator.lock("r").wait(Wait::Never).acquire().await.unwrap_err();
        hidden("an error", &(shown(&error) + &error.to_string()));
        hidden("a check-up", &shown(&coordinator.doctor().await));
    }
    for malformed in ["redis://:{}/@a", "redis://u:{}@", "{}://a", "redis://:{}@a:port", "redis://a?pass={}"]
    {
        let error = Coordinator::builder().nodes([malformed.replace("{}", PASSWORD)]).build().unwrap_err();
        hidden("a refused address", &(shown(&error) + &error.to_string()));
        // The message of a panic.
        hidden("a panic", &format!("called `Result::unwrap()` on an `Err` value: {error:?}"));
    }
    let mut address = Address::parse(&format!("redis://anna:{PASSWORD}@a/3")).unwrap();
    hidden("an address", &(shown(&address) + &address.to_string() + &shown(address.endpoint())));
    address.set_password(WRONG);
    hidden("an address", &shown(&address));
    hidden("a node", &shown(&RedisNode::new(address)));

    let text = log.text();
    assert!(text.contains("connected"), "nothing was logged, so nothing was tested");
    hidden("the log", &text);
}
