//! The way to a memory node and back: what is on it, and what holds it up.

use std::collections::VecDeque;
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{Answer, NodeError, Question, Reply};

use super::{InSocket, Questions};

pub(super) type Answered = (Reply, Result<Answer, NodeError>);

/// One connection, with two queues: questions before the server, answers before the client.
#[derive(Default)]
pub(super) struct Line {
    link: Link,
    request: Duration,
    reply: Duration,
    hung: bool,
    requests_lost: bool,
    replies_lost: bool,
    in_socket: InSocket,
    questions: Questions,
    unsent: Vec<(Question, Reply)>,
    inbox: VecDeque<Sent>,
    /// From connections that have ended.
    orphans: VecDeque<Orphan>,
    outbox: VecDeque<Coming>,
    /// Errors that the client learns at once.
    refused: Vec<Answered>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Link {
    #[default]
    Up,
    Coming,
    Down,
}

struct Sent {
    question: Question,
    reply: Reply,
    due: Moment,
}

struct Orphan {
    question: Question,
    due: Moment,
}

struct Coming {
    answered: Answered,
    due: Moment,
}

/// Faults.
impl Line {
    pub(super) fn link(&self) -> Link {
        self.link
    }

    pub(super) fn questions(&self) -> Questions {
        self.questions
    }

    pub(super) fn delay(&mut self, request: Duration, reply: Duration) {
        (self.request, self.reply) = (request, reply);
    }

    pub(super) fn hang(&mut self, hung: bool) {
        self.hung = hung;
    }

    pub(super) fn lose_requests(&mut self, lost: bool) {
        self.requests_lost = lost;
    }

    pub(super) fn lose_replies(&mut self, lost: bool) {
        self.replies_lost = lost;
    }

    pub(super) fn in_socket(&mut self, fate: InSocket) {
        self.in_socket = fate;
    }

    pub(super) fn connecting(&mut self) {
        self.cut("the connection was reset");
        self.link = Link::Coming;
    }

    pub(super) fn connect(&mut self) -> Vec<(Question, Reply)> {
        self.link = Link::Up;
        std::mem::take(&mut self.unsent)
    }

    pub(super) fn disconnect(&mut self) {
        self.cut("the connection was reset");
        self.link = Link::Down;
        for (_, reply) in std::mem::take(&mut self.unsent) {
            let reason = "the connection could not be made".into();
            self.refuse(reply, NodeError::Unreachable { reason });
        }
    }

    /// The process at the other end is another one now. It listens at once, so the link is as it
    /// was.
    pub(super) fn reset(&mut self) {
        self.cut("the server ended");
        self.orphans.clear();
        self.hung = false;
    }

    fn cut(&mut self, reason: &str) {
        let disconnected = || NodeError::Disconnected { reason: reason.into() };
        let arriving = self.in_socket == InSocket::CarriedOut && !self.requests_lost;
        for Sent { question, reply, due } in self.inbox.drain(..) {
            self.refused.push((reply, Err(disconnected())));
            if arriving {
                self.orphans.push_back(Orphan { question, due });
            }
        }
        for Coming { answered: (reply, _), .. } in self.outbox.drain(..) {
            self.refused.push((reply, Err(disconnected())));
        }
    }
}

/// Traffic.
impl Line {
    pub(super) fn send(&mut self, now: Moment, question: Question, reply: Reply) {
        self.questions.count(&question);
        self.inbox.push_back(Sent { question, reply, due: now + self.request });
    }

    pub(super) fn keep_unsent(&mut self, question: Question, reply: Reply) {
        self.unsent.push((question, reply));
    }

    pub(super) fn refuse(&mut self, reply: Reply, error: NodeError) {
        self.refused.push((reply, Err(error)));
    }

    /// Lets everything happen that is due, and hands out the answers that have come.
    pub(super) fn advance(
        &mut self,
        now: Moment,
        mut carry_out: impl FnMut(&Question) -> Result<Answer, NodeError>,
    ) -> Vec<Answered> {
        let mut answers = std::mem::take(&mut self.refused);
        while let Some(Sent { question, reply, .. }) = self.arrived(now) {
            let answered = (reply, carry_out(&question));
            self.outbox.push_back(Coming { answered, due: now + self.reply });
        }
        while !self.hung && self.orphans.front().is_some_and(|orphan| orphan.due <= now) {
            // Nobody hears the answer.
            drop(self.orphans.pop_front().map(|orphan| carry_out(&orphan.question)));
        }
        while !self.replies_lost && self.outbox.front().is_some_and(|coming| coming.due <= now) {
            answers.extend(self.outbox.pop_front().map(|coming| coming.answered));
        }
        answers
    }

    /// The earliest moment at which something can happen by itself.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let sent = self.inbox.front().filter(|_| !self.stuck()).map(|sent| sent.due);
        let orphan = self.orphans.front().filter(|_| !self.hung).map(|orphan| orphan.due);
        let coming = self.outbox.front().filter(|_| !self.replies_lost).map(|coming| coming.due);
        [sent, orphan, coming].into_iter().flatten().min()
    }

    fn arrived(&mut self, now: Moment) -> Option<Sent> {
        let due = !self.stuck() && self.inbox.front()?.due <= now;
        if due { self.inbox.pop_front() } else { None }
    }

    fn stuck(&self) -> bool {
        self.hung || self.requests_lost
    }
}

impl Questions {
    fn count(&mut self, question: &Question) {
        match question {
            Question::Acquire { .. } => self.acquire += 1,
            Question::Renew { .. } => self.renew += 1,
            Question::Release { .. } => self.release += 1,
            Question::Cancel { .. } => self.cancel += 1,
            Question::Inspect { .. } => self.inspect += 1,
            // A kind that is newer than this kit.
            _ => {}
        }
    }
}
