//! The slots of each master, as one member of the cluster reports them.

use std::collections::BTreeSet;
use std::sync::Arc;

use quorlock_protocol::Slot;

/// The report of one member about all members (`CLUSTER NODES`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Map {
    /// The permanent IDs of all known members.
    pub(super) members: Arc<BTreeSet<Arc<str>>>,
    /// The addresses of the members, masters first.
    pub(super) places: Vec<HostPort>,
    pub(super) masters: Vec<Master>,
    /// The largest epoch of the masters that serve slots, which increases when slots move. The epoch of other
    /// members is ignored: it goes back when a master becomes a replica.
    pub(super) epoch: u64,
}

/// The address of a member.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct HostPort {
    /// Empty if the member does not know its own host.
    pub(super) host: String,
    pub(super) port: u16,
}

/// A master that serves slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Master {
    pub(super) place: HostPort,
    /// The first and last slot of each range, in order.
    pub(super) slots: Vec<(u16, u16)>,
    /// The number of its replicas that are not marked as failed.
    pub(super) replicas: u64,
}

impl Map {
    /// Parses the table. Skips invalid lines; returns `None` if there is no master.
    pub(super) fn read(table: &str) -> Option<Map> {
        let mut map = Map::default();
        let mut replicas = Vec::new();
        let mut names = Vec::new();
        let mut members = BTreeSet::new();
        for line in table.lines() {
            let Some(row) = Row::read(line) else { continue };
            members.insert(row.id.into());
            if row.has("noaddr") || row.has("handshake") {
                continue;
            }
            if row.has("master") && !row.slots.is_empty() {
                map.places.insert(map.masters.len(), row.place.clone());
                names.push(row.id);
                map.epoch = map.epoch.max(row.epoch);
                map.masters.push(Master { place: row.place, slots: row.slots, replicas: 0 });
            } else {
                if !row.has("fail") {
                    replicas.push(row.master);
                }
                map.places.push(row.place);
            }
        }
        for (master, name) in map.masters.iter_mut().zip(names) {
            master.replicas = u64::try_from(replicas.iter().filter(|of| **of == name).count()).unwrap_or(0);
        }
        map.members = Arc::new(members);
        (!map.masters.is_empty()).then_some(map)
    }

    /// Returns the number of slots without a master.
    pub(super) fn uncovered(&self) -> u16 {
        let served: u32 = self.masters.iter().map(Master::share).map(u32::from).sum();
        Slot::COUNT - u16::try_from(served).unwrap_or(Slot::COUNT).min(Slot::COUNT)
    }

    /// Sets the host of members that do not know their own: that of the member that was asked.
    pub(super) fn call_nameless(&mut self, host: &str) {
        let masters = self.masters.iter_mut().map(|master| &mut master.place);
        for place in self.places.iter_mut().chain(masters).filter(|place| place.host.is_empty()) {
            host.clone_into(&mut place.host);
        }
    }

    /// Returns whether it is the map of another cluster: no member is in both.
    pub(super) fn is_of_another_cluster_than(&self, other: &Map) -> bool {
        self.members.is_disjoint(&other.members)
    }
}

impl Master {
    /// Returns the number of slots that it serves.
    pub(super) fn share(&self) -> u16 {
        let of = |(first, last): &(u16, u16)| u32::from(last.saturating_sub(*first)) + 1;
        u16::try_from(self.slots.iter().map(of).sum::<u32>()).unwrap_or(Slot::COUNT)
    }

    /// Returns the first of its slots.
    pub(super) fn home(&self) -> Slot {
        let first = self.slots.first().map_or(0, |(first, _)| *first);
        Slot::numbered(first).unwrap_or(Slot::of(""))
    }

    pub(super) fn serves(&self, slot: Slot) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot.number()))
    }
}

/// A line of the table.
struct Row<'a> {
    id: &'a str,
    place: HostPort,
    flags: &'a str,
    master: &'a str,
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

/// The longest accepted host name.
const LONGEST_HOST: usize = 255;

impl<'a> Row<'a> {
    /// Parses `id host:port@bus[,name…] flags master ping pong epoch link slot…`.
    fn read(line: &'a str) -> Option<Row<'a>> {
        let mut words = line.split(' ');
        let (id, address, flags, master) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let (_, _, epoch, _) = (words.next()?, words.next()?, words.next()?, words.next()?);
        if id.is_empty() || id.len() > 64 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let (address, more) = address.split_once(',').unwrap_or((address, ""));
        let (host, port) = address.split('@').next()?.rsplit_once(':')?;
        // An announced host name is preferred: certificates are issued for names.
        let name = more.split(',').next().unwrap_or("");
        let host = if name.is_empty() || name.contains('=') { host } else { name };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_%".contains(&byte);
        if host.len() > LONGEST_HOST || !host.bytes().all(plain) {
            return None;
        }
        let place = HostPort { host: host.into(), port: port.parse().ok()? };
        // Slots that are being migrated are in brackets. The source still serves them.
        let slots = words.filter(|word| !word.starts_with('[')).map(slots).collect::<Option<_>>()?;
        Some(Row { id, place, flags, master, epoch: epoch.parse().ok()?, slots })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.split(',').any(|word| word == flag)
    }
}

fn slots(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < Slot::COUNT).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "\
a1 127.0.0.1:7001@17001,,tls-port=0,shard-id=9 master - 0 1700000000000 2 connected 5461-10922 [5461->-c3]
b2 10.0.0.2:7002@17002,db-7 myself,master - 0 0 9 connected 0-5459 5460 10923-10924
c3 10.0.0.3:7003@17003 master,fail - 1700000000000 1700000000000 3 disconnected 10925-16380
d4 10.0.0.4:7004@17004 slave b2 0 1700000000000 12 connected
e5 10.0.0.5:7005@17005 slave,fail b2 0 1700000000000 9 connected
f6 :0@0 slave,noaddr a1 0 1700000000000 1 disconnected
";

    #[test]
    fn each_line_of_the_table_is_understood() {
        let map = Map::read(TABLE).unwrap();
        assert_eq!((map.members.len(), map.masters.len(), map.epoch, map.uncovered()), (6, 3, 9, 3));
        let [one, two, three] = &map.masters[..] else { panic!("{map:?}") };
        assert_eq!(one.place, HostPort { host: "127.0.0.1".into(), port: 7001 });
        assert_eq!(two.place, HostPort { host: "db-7".into(), port: 7002 }, "its name is preferred");
        assert_eq!((two.share(), two.replicas, one.replicas), (5463, 1, 0));
        assert!(
            three.serves(Slot::numbered(16380).unwrap()),
            "a failed master keeps its slots until another takes them"
        );
        let places: Vec<_> = map.places.iter().map(|place| place.port).collect();
        assert_eq!(places, [7001, 7002, 7003, 7004, 7005]);
    }

    #[test]
    fn invalid_lines_are_skipped() {
        for line in [
            "",
            "a1 1.1.1.1:70000@1 master - 0 0 1 connected 0-5",
            "a1 1.1.1.1:7000@1 master - 0 0 1 connected 5-16384",
            "a1 1.1.1.1:7000@1 master - 0 0 1 connected 5-0",
            "a1 a/b@c:7000@1 master - 0 0 1 connected 0-5",
            "a1 \u{1b}[2J:7000@1 master - 0 0 1 connected 0-5",
            "a1 1.1.1.1:7000@1 master - 0 0 1 connected",
            "a1 1.1.1.1:7000@1 slave b2 0 0 1 connected",
        ] {
            assert_eq!(Map::read(line), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn no_table_makes_it_panic(
            words in prop::collection::vec("[a-f0-9:@,.-]{0,12}|master|slave|0-16383|[0-9]{1,6}(-[0-9]{1,6})?", 0..40),
        ) {
            if let Some(map) = Map::read(&words.join(" ").replace(" f ", "\n")) {
                prop_assert!(map.uncovered() <= Slot::COUNT);
            }
        }
    }
}
