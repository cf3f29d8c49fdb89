//! What `doctor` says of an ensemble. Pure, but for the questions.

use std::collections::BTreeMap;

use quorlock::node::facts::{Concern, Software};
use quorlock::node::places::{Local, Member, concern_about};
use quorlock::node::{NodeError, Seams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::address::ZooKeeperAddress;
use crate::error::Failure;
use crate::session::Session;
use crate::wire::Call;

/// The longest answer of a member about itself.
const LONGEST: u64 = 1 << 16;

/// Asks the members about themselves and their ensemble. Sets what they are, if they say it. Ends the session.
pub(crate) async fn concerns(session: &Session, software: &mut Option<Software>) -> Vec<Concern> {
    let Local { address, seams, .. } = &session.memory.local;
    let config = Call::GetData { path: "/zookeeper/config".to_owned(), watch: false };
    let config = session.client.send(&config).found().await;
    session.close().await;
    let mut versions = BTreeMap::new();
    for member in address.members() {
        if let Some(version) = version(address, member, seams).await {
            versions.insert(member.to_string(), version);
        }
    }
    *software = versions.values().min().map(|version| Software::new("ZooKeeper", version.as_str()));
    let config = config.ok().flatten();
    let config = config.as_ref().and_then(|answer| Some(answer.data().ok()?.0));
    found(config.map(String::from_utf8_lossy).as_deref(), &versions)
}

/// Asks a member for its version, by a command that it answers unless an administrator has forbidden it.
async fn version(address: &ZooKeeperAddress, member: &Member, seams: &Seams) -> Option<String> {
    let asked = async {
        let mut stream = address.members.dial(member, seams, None).await?;
        let unread = |error: std::io::Error| Failure::Lost(error.into()).before_anything_changed();
        stream.write_all(b"srvr").await.map_err(unread)?;
        stream.flush().await.map_err(unread)?;
        let mut replies = Vec::new();
        (&mut stream).take(LONGEST).read_to_end(&mut replies).await.map_err(unread)?;
        Ok::<_, NodeError>(String::from_utf8_lossy(&replies).into_owned())
    };
    let replies = asked.await.ok()?;
    let version = replies.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))?;
    version.split(['-', ',', ' ']).next().map(str::to_owned)
}

/// Derives the concerns.
fn found(config: Option<&str>, versions: &BTreeMap<String, String>) -> Vec<Concern> {
    let mut found = Vec::new();
    let is_voter = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
    let voters = config.map_or(0, |config| config.lines().filter(is_voter).count());
    // A server that is alone has no list.
    let is_alone = config.is_some_and(|config| !config.contains("server."));
    found.extend(concern_about(if is_alone { 1 } else { voters }));
    let mut all: Vec<&String> = versions.values().collect();
    all.sort_unstable();
    all.dedup();
    if all.len() > 1 {
        let shown: Vec<String> =
            versions.iter().map(|(member, version)| format!("{member}: {version}")).collect();
        found.push(Concern::new(
            format!("has members of several versions ({})", shown.join(", ")),
            "complete the update",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(config: &str, versions: &[(&str, &str)]) -> Vec<String> {
        let versions =
            versions.iter().map(|(member, version)| ((*member).to_owned(), (*version).to_owned())).collect();
        found(Some(config), &versions).iter().map(|concern| concern.evidence.to_string()).collect()
    }

    #[test]
    fn a_sound_ensemble_raises_no_concern_and_each_fault_one() {
        let member =
            |number: u32, kind: &str| format!("server.{number}=h{number}:2888:3888:{kind};0.0.0.0:2181\n");
        let of = |voters: u32| (1..=voters).map(|number| member(number, "participant")).collect::<String>();
        let version = &[("a:2181", "3.9.5"), ("b:2181", "3.9.5")];
        assert!(all(&(of(3) + "version=0"), version).is_empty());
        assert!(all(&(of(3) + &member(4, "observer")), version).is_empty());
        assert!(all(&of(4), version)[0].contains("4 members"));
        assert!(all(&of(1), version)[0].contains("has one member"));
        assert!(all("", version)[0].contains("has one member"));
        let mixed = &[("a:2181", "3.9.5"), ("b:2181", "3.8.4")];
        assert!(all(&of(3), mixed)[0].contains("b:2181: 3.8.4"));
    }
}
