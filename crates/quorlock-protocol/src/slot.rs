//! Hash slots of a Redis Cluster.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// One of the 16384 hash slots of a Redis Cluster. Keys of one slot are always on the same server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u16);

impl Slot {
    /// The number of slots.
    pub const COUNT: u16 = 16_384;

    /// Returns the slot of `key`: CRC16 of its hash tag, or of the whole key.
    #[must_use]
    pub fn of(key: &str) -> Slot {
        let hashed = hash_tag(key).unwrap_or(key);
        Slot(crc16(hashed.as_bytes()) % Slot::COUNT)
    }

    /// Returns the slot that `key` would have without its hash tag.
    pub(crate) fn of_whole(key: &str) -> Slot {
        Slot(crc16(key.as_bytes()) % Slot::COUNT)
    }

    /// Returns the slot of this number, if there is one.
    #[must_use]
    pub fn numbered(number: u16) -> Option<Slot> {
        (number < Slot::COUNT).then_some(Slot(number))
    }

    /// Returns its number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns the smallest number that puts a key into this slot if its hash tag is `text` and the number.
    #[must_use]
    pub(crate) fn number_behind(self, text: &str) -> u32 {
        let begun = crc16(text.as_bytes());
        let hashed = |number: &u32| resume(begun, itoa::Buffer::new().format(*number).as_bytes());
        (0..u32::MAX).find(|number| hashed(number) % Slot::COUNT == self.0).unwrap_or(0)
    }

    /// Returns the smallest number that, as a hash tag, puts a key into this slot.
    #[must_use]
    pub fn tag(self) -> u32 {
        let Some(known) = TAGS.get(usize::from(self.0)) else { return find_tag(self) };
        known.load(Ordering::Relaxed).checked_sub(1).unwrap_or_else(|| {
            let tag = find_tag(self);
            known.store(tag + 1, Ordering::Relaxed);
            tag
        })
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the part of a key that determines its slot, by the Redis Cluster specification.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// One more than the tag of each slot, or 0 as long as it is not known.
static TAGS: [AtomicU32; Slot::COUNT as usize] = [const { AtomicU32::new(0) }; Slot::COUNT as usize];

/// Finds the smallest number that puts a key into this slot as its tag.
///
/// A number of three digits and more is looked for by all but its last two: the checksum of a text is that of its beginning,
/// followed by zeros, combined with that of its end. So the end must have a checksum of which few numbers are known.
fn find_tag(slot: Slot) -> u32 {
    let checksum = |number: u32| crc16(itoa::Buffer::new().format(number).as_bytes());
    if let Some(short) = (0..100).find(|number| checksum(*number) % Slot::COUNT == slot.0) {
        return short;
    }
    let with_end = |hundreds: u32| {
        let wanted = (resume(checksum(hundreds), &[0, 0]) % Slot::COUNT) ^ slot.0;
        let first = ENDS.partition_point(|(checksum, _)| *checksum < wanted);
        let (_, end) = ENDS.get(first).filter(|(checksum, _)| *checksum == wanted)?;
        Some(hundreds * 100 + u32::from(*end))
    };
    (1..u32::MAX / 100).find_map(with_end).unwrap_or(0)
}

/// The two last digits of a number, in order of their checksums in a slot.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const ENDS: [(u16, u8); 100] = {
    let mut ends = [(0, 0); 100];
    let mut end: u8 = 0;
    while end < 100 {
        let mut crc = STEPS[(b'0' + end / 10) as usize];
        crc = (crc << 8) ^ STEPS[((crc >> 8) as u8 ^ (b'0' + end % 10)) as usize];
        let mut place = end as usize;
        while place > 0 && ends[place - 1].0 > crc % Slot::COUNT {
            ends[place] = ends[place - 1];
            place -= 1;
        }
        ends[place] = (crc % Slot::COUNT, end);
        end += 1;
    }
    ends
};

/// Computes CRC16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    resume(0, bytes)
}

/// Continues a computation with more bytes.
fn resume(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc: u16, byte| {
        let [high, _] = crc.to_be_bytes();
        (crc << 8) ^ STEPS.get(usize::from(high ^ byte)).copied().unwrap_or(0)
    })
}

/// The contribution of each byte.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const STEPS: [u16; 256] = {
    let mut steps = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        steps[byte as usize] = crc;
        byte += 1;
    }
    steps
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [("foo", 12182), ("{user1000}.following", 3443), ("", 0)] {
            assert_eq!(Slot::of(key).number(), slot, "{key:?}");
        }
        assert_eq!(Slot::of("foo{{bar}}zap"), Slot::of("{bar"));
        assert_eq!(Slot::of("foo{bar}{zap}"), Slot::of("bar"));
    }

    #[test]
    fn every_slot_has_a_tag() {
        for slot in (0..Slot::COUNT).filter_map(Slot::numbered) {
            assert_eq!(Slot::of(&format!("before{{{}}}behind", slot.tag())), slot);
        }
    }

    #[test]
    fn a_tag_is_the_smallest_number_whichever_was_asked_for_before() {
        for number in (0..Slot::COUNT).step_by(101) {
            let slot = Slot::numbered(number).unwrap();
            assert_eq!(slot.tag(), slot.number_behind(""), "slot {slot}");
            assert_eq!(slot.tag(), slot.number_behind(""), "slot {slot}, asked again");
        }
    }
}
