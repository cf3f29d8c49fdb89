//! Five masters, with faults.

use std::fmt;
use std::time::Duration;

use quorlock_testkit::{Kind, Proxy, Resp, SeededRng, Servers};

use crate::record::now;
use crate::{LOCKS, TTL};

pub(crate) struct Masters {
    servers: Servers,
    state: [State; 5],
    /// When each may vote again after a restart.
    young_until: [Duration; 5],
    faults: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Sound,
    Dead,
    Frozen,
}

impl Masters {
    pub(crate) async fn start() -> Masters {
        let servers = Servers::start(5).await.expect("the servers start");
        Masters { servers, state: [State::Sound; 5], young_until: [Duration::ZERO; 5], faults: 0 }
    }

    pub(crate) fn kind(&self) -> &Kind {
        self.servers.kind()
    }

    /// Starts a proxy to each of them, which can be cut.
    pub(crate) async fn ways(&self) -> Vec<Proxy> {
        self.servers.ways(Duration::ZERO).await.expect("proxies start")
    }

    /// Breaks or repairs one of them. Usually a quorum remains, sometimes not.
    pub(crate) async fn hurt(&mut self, rng: &SeededRng) {
        let which = rng.below(5);
        let present = now();
        let votes =
            |(state, young_until): &(&State, &Duration)| **state == State::Sound && present > **young_until;
        let broken = 5 - self.state.iter().zip(&self.young_until).filter(votes).count();
        let server = &self.servers[which];
        match self.state[which] {
            State::Sound if broken >= 3 || (broken == 2 && rng.below(4) > 0) => return,
            State::Sound if rng.below(2) == 0 => {
                server.kill();
                self.state[which] = State::Dead;
            }
            State::Sound => {
                server.freeze().expect("a server can be stopped");
                self.state[which] = State::Frozen;
            }
            State::Dead => {
                server.restart_empty().await.expect("a server starts again");
                self.state[which] = State::Sound;
                self.young_until[which] = now() + TTL;
            }
            State::Frozen => {
                server.thaw().expect("a server goes on");
                self.state[which] = State::Sound;
            }
        }
        self.faults += 1;
    }

    pub(crate) async fn heal(&mut self) {
        for (server, state) in self.servers.iter().zip(&mut self.state) {
            match state {
                State::Sound => {}
                State::Dead => server.restart_empty().await.expect("a server starts again"),
                State::Frozen => server.thaw().expect("a server goes on"),
            }
            *state = State::Sound;
        }
    }

    /// Returns the tokens stored on the servers without a fault.
    pub(crate) async fn tokens(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (server, state) in self.servers.iter().zip(self.state) {
            if state != State::Sound {
                continue;
            }
            for lock in 0..LOCKS {
                if let Ok(Resp::Text(token)) = server.command(&["GET", &format!("lock-{lock}")]).await {
                    found.push(String::from_utf8_lossy(&token).into_owned());
                }
            }
        }
        found
    }

    /// Returns the keys of all locks on all servers, without their companions.
    pub(crate) async fn locks(&self) -> Vec<String> {
        let mut found = Vec::new();
        for server in self.servers.iter() {
            let Ok(Resp::List(keys)) = server.command(&["KEYS", "lock-?"]).await else {
                return vec!["unknown".to_owned()];
            };
            found.extend(keys.iter().map(ToString::to_string));
        }
        found
    }
}

impl fmt::Display for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} faults of servers", self.faults)
    }
}
