//! Clauses about what is asked at once, and about who answers.

use std::sync::Arc;

use futures::future::maybe_done;
use quorlock::protocol::FencingToken;
use quorlock::{Question, Vote, ask};

use super::bench::{Bench, Finding, LONG, acquisition, ensure, is};

pub(super) async fn five_hundred_questions_at_once_are_carried_out_in_order(bench: &Bench<'_>) -> Finding {
    const PAIRS: usize = 250;
    let key = bench.key();
    let mut asked = Vec::new();
    for claim in (0..PAIRS).map(|_| bench.claim(&key)) {
        for question in [acquisition(&claim, LONG, bench.draw()), Question::Release { claim }] {
            let mut answer = Box::pin(maybe_done(ask(bench.node, question)));
            // The first poll asks; nobody waits yet.
            let _ = futures::poll!(answer.as_mut());
            asked.push(answer);
        }
    }
    for (place, answer) in asked.iter_mut().enumerate() {
        answer.as_mut().await;
        let answer = answer.as_mut().take_output().ok_or("a question was not answered")?;
        let vote = answer.map_err(|error| format!("question {place}: {error}"))?.vote;
        is(&vote, &Vote::Granted).map_err(|finding| format!("question {place}: {finding}"))?;
    }
    bench.free(&key).await
}

pub(super) async fn a_question_is_carried_out_though_its_asker_has_gone(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    {
        let mut gone = Box::pin(ask(bench.node, acquisition(&claim, LONG, bench.draw())));
        drop(futures::poll!(gone.as_mut()));
    }
    // Ordered behind it.
    bench.held(&claim, LONG).await.map(drop)
}

pub(super) async fn every_answer_names_the_same_process(bench: &Bench<'_>) -> Finding {
    let claim = bench.claim(&bench.key());
    let linger = LONG;
    let questions = [
        acquisition(&claim, LONG, bench.draw()),
        Question::Acquire { claim: Arc::clone(&claim), ttl: LONG, draw: None },
        Question::WriteBack { claim: Arc::clone(&claim), fencing_token: FencingToken::ZERO },
        Question::Renew { claim: Arc::clone(&claim), ttl: LONG, fencing_token: None },
        Question::Inspect { key: claim.key().into() },
        Question::Release { claim: Arc::clone(&claim) },
        Question::Cancel { claim, linger },
    ];
    let mut ids = Vec::new();
    for question in questions {
        ids.push(bench.ask(question).await.map_err(|error| error.to_string())?.instance.id.clone());
    }
    ensure(ids.iter().all(|id| !id.is_empty()), "a process has no name")?;
    ids.dedup();
    ensure(ids.len() == 1, format!("one process has several names: {ids:?}"))
}
