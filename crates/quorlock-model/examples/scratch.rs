use quorlock_model::explore::*;
use quorlock_model::offer::state::Kind::{self, *};
use quorlock_model::offer::*;
fn show(name: &str, r: Report, steps: bool) {
    println!("{name:<28} {} {:?} {:.1}s missing {:?} {}", if r.broken.is_some() {"BROKEN"} else {"holds"}, r.broken.as_ref().map(|b| (b.property, b.steps.len())), r.took.as_secs_f64(), r.missing, r.seen);
    if steps { if let Some(b) = &r.broken { println!("{b}"); } }
}
fn p<const K: usize>(n: &str, s: Scheme, k: [Kind; K], w: World) { let f: Vec<String>=std::env::args().skip(1).collect(); if f.is_empty() || f.iter().any(|f| n.contains(f.as_str())) { show(n, prove(Offer::<3, K>::new(s, k, w), 1), true) } }
fn h<const K: usize>(n: &str, s: Scheme, k: [Kind; K], w: World) { let f: Vec<String>=std::env::args().skip(1).collect(); if f.is_empty() || f.iter().any(|f| n.contains(f.as_str())) { show(n, hunt(&Offer::<3, K>::new(s, k, w)), std::env::var("STEPS").is_ok()) } }
fn main() {
    use Scheme::*;
    let hwwp = [Holder, Waiter, Waiter, Plain];
    let hwp = [Holder, Waiter, Plain];
    p("R calm hwp", Quorlock, hwp, World::calm());
    h("B FromPush", FromPush, hwp, World::calm());
    h("B OneToken", OneToken, hwp, World::calm());
    h("B AnyOffer", AnyOffer, [Holder, Waiter, Waiter], World::calm());
    h("B TwoTokens", TwoTokens, hwwp, World::calm());
    h("B WhateverStands", WhateverStands, [Holder, Waiter, Waiter], World::calm());
    h("B UntilAnswered", UntilAnswered, [Holder, Waiter], World::calm());
    h("B Reuse", Reuse, hwp, World::calm().literally());
    h("B RestoredLate", RestoredLate, hwp, World::renewing(1));
    h("B NoDeadline", NoDeadline, hwp, World::calm().literally());
    h("B Twice", Twice, hwp, World { reminders: 1, ..World::calm() });
    h("B Minority", Minority, hwp, World::calm());
    h("B YoungVotes", YoungVotes, hwp, World::forgetful(1));
    h("B NoQuarantine", Quorlock, hwp, World { quarantine: 0, ..World::forgetful(1) });
    h("B LongOffer", Quorlock, hwp, World { offer: 4, ..World::forgetful(1) });
    h("B LongOffer3", Quorlock, hwp, World { offer: 3, ..World::forgetful(1) });
    h("B NoWriteBack", NoWriteBack, hwp, World::timeless());
    h("B NotRaised timed", NotRaised, hwp, World::fenced());
    h("B NotRaised ", NotRaised, [Holder, Holder, Waiter], World::timeless());
    p("R absent hwp", AbsentToo, hwp, World::calm());
    p("R calm hwwp", Quorlock, hwwp, World::calm());
    p("R renewing hwp", Quorlock, hwp, World::renewing(1));
    p("R forgetful hwp", Quorlock, hwp, World::forgetful(1));
    p("R drift hwp", Quorlock, hwp, World::drifting(1, 0));
    p("R driftb hwp", Quorlock, hwp, World::drifting(0, 1));
    p("R remind hwp", Quorlock, hwp, World { reminders: 1, ..World::calm() });
    p("R timeless hwp", Quorlock, hwp, World::timeless());
    p("R fenced hwp", Quorlock, hwp, World::fenced());
    p("R literal hwp", Quorlock, hwp, World::calm().literally());
}
