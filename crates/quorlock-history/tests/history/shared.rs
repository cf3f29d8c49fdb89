use quorlock_history::{Check, Violation, What};

use crate::script::Script;

impl Script {
    /// Like [`Script::held`], by a reader.
    fn read(&mut self, attempt: &str, from: u64, to: u64) -> &mut Script {
        self.invoked(from, attempt).shares(from, attempt);
        self.acquired(from + 10, attempt, from + 1_000).released(to, attempt)
    }

    fn shares(&mut self, when: u64, attempt: &str) -> &mut Script {
        self.record(when, What::Shares { attempt: attempt.into() })
    }
}

#[test]
fn readers_may_hold_a_lock_together() {
    let mut script = Script::default();
    script.read("ann1", 0, 500).read("ben1", 100, 400).read("cid1", 450, 800).held("dan1", 790, 900);
    script.assert_clean();
}

#[test]
fn a_writer_and_a_reader_together_are_found() {
    let mut script = Script::default();
    script.read("ann1", 0, 500).read("ben1", 100, 200).held("cid1", 300, 400);
    assert_eq!(script.found(Check::Exclusion).len(), 1, "ann still reads");
    let found = script.found(Check::Mutex);
    assert!(
        matches!(found[..], [Violation::NoOrder { for_tokens: false, .. }]),
        "by the other algorithm: {found:?}"
    );
    let mut script = Script::default();
    script.held("ann1", 0, 500).read("ben1", 100, 200).read("cid1", 300, 400);
    assert_eq!(script.found(Check::Exclusion).len(), 2, "both read while ann wrote");
    assert_eq!(script.found(Check::Mutex).len(), 1);
}

#[test]
fn a_short_writer_is_compared_with_the_reader_that_lasts_longest() {
    let mut script = Script::default();
    script.held("zoe1", 0, 100).read("ann1", 110, 900).read("ben1", 120, 200).held("cid1", 300, 400);
    assert_eq!(script.found(Check::Exclusion).len(), 1);
}

#[test]
fn a_writer_that_downgrades_is_alone_before_and_not_after() {
    let mut script = Script::default();
    script.invoked(0, "ann1").acquired(10, "ann1", 1_000).shares(300, "ann1");
    let mut early = Script { history: script.history.clone() };
    let mut writer = Script { history: script.history.clone() };
    script.released(600, "ann1").read("ben1", 295, 400).held("cid1", 590, 700);
    script.assert_clean();
    early.released(600, "ann1").read("ben1", 285, 400);
    assert_eq!(early.found(Check::Exclusion).len(), 1, "ben read before ann's downgrade");
    assert_eq!(early.found(Check::Mutex).len(), 1);
    writer.released(600, "ann1").held("cid1", 350, 400);
    assert_eq!(writer.found(Check::Exclusion).len(), 1, "ann still reads");
    assert_eq!(writer.found(Check::Mutex).len(), 1);
}

#[test]
fn tokens_of_readers_are_between_those_of_the_writers_and_need_no_order_of_their_own() {
    let history = |tokens: [u64; 4]| {
        let mut script = Script::default();
        let [before, ann, ben, after] = tokens;
        script.fenced(0, "zoe1", before).released(100, "zoe1");
        script.invoked(200, "ann1").shares(200, "ann1").acquired_with(210, "ann1", 1_200, ann);
        script.invoked(220, "ben1").shares(220, "ben1").acquired_with(230, "ben1", 1_200, ben);
        script.released(400, "ann1").released(400, "ben1");
        script.fenced(500, "cid1", after).released(600, "cid1");
        script
    };
    history([1, 2, 2, 3]).assert_clean();
    history([1, 2, 3, 4]).assert_clean();
    for tokens in [[2, 2, 2, 3], [1, 2, 2, 2], [3, 2, 2, 4], [1, 3, 3, 2], [1, 3, 2, 4]] {
        assert_ne!(history(tokens).found(Check::Register), [], "{tokens:?}");
    }
    for tokens in [[2, 2, 2, 3], [1, 2, 2, 2], [1, 3, 3, 2]] {
        let found = history(tokens).found(Check::Mutex);
        assert!(matches!(found[..], [Violation::NoOrder { for_tokens: true, .. }]), "{tokens:?}: {found:?}");
    }
}

#[test]
fn a_share_is_recorded_once_and_of_an_attempt_that_began() {
    let mut script = Script::default();
    script.shares(0, "ann1").read("ben1", 10, 100).shares(50, "ben1");
    assert_eq!(script.found(Check::Record).len(), 2);
    let lines = script.history.to_lines();
    assert_eq!(quorlock_history::History::from_lines(&lines).unwrap(), script.history);
    assert!(lines.contains("shares"), "{lines}");
}
