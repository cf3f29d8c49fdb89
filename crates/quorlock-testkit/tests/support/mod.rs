//! A node that does nothing but run the scripts over the client crate, one after the other.
//!
//! The library's own node is tested in the library. This one is here so that the kit can check its
//! store and its server against real ones without it.

use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{Moment, Token};
use quorlock::{Answer, Expiry, Holding, Instance, Lasting, Node, NodeError, Question, Reply, Vote, scripts};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value, cmd};
use tokio::sync::mpsc;

#[derive(Debug)]
pub(crate) struct ScriptNode {
    name: String,
    line: mpsc::UnboundedSender<(Question, Reply)>,
}

impl ScriptNode {
    pub(crate) async fn connect(url: &str) -> RedisResult<ScriptNode> {
        let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let info: String = cmd("INFO").arg("server").query_async(&mut redis).await?;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default();
        let instance = Arc::new(Instance::new(run_id, Moment::ORIGIN, Duration::ZERO));
        let (line, mut questions) = mpsc::unbounded_channel::<(Question, Reply)>();
        tokio::spawn(async move {
            while let Some((question, reply)) = questions.recv().await {
                let vote = carry_out(&mut redis, &question).await;
                reply.send(vote.map(|vote| Answer::new(vote, Arc::clone(&instance))));
            }
        });
        Ok(ScriptNode { name: url.to_owned(), line })
    }
}

impl Node for ScriptNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, question: Question, reply: Reply) {
        drop(self.line.send((question, reply)));
    }
}

async fn carry_out(redis: &mut MultiplexedConnection, question: &Question) -> Result<Vote, NodeError> {
    let said: RedisResult<Vec<Value>> = command(question).query_async(redis).await;
    let said = said.map_err(|error| NodeError::Failed {
        message: error.to_string().into(),
        lasting: if error.code() == Some("WRONGTYPE") { Lasting::UntilMended } else { Lasting::Passing },
    })?;
    match said.as_slice() {
        [Value::BulkString(word)] if word == b"granted" => Ok(Vote::Granted),
        [Value::BulkString(word)] if word == b"restored" => Ok(Vote::Restored),
        [Value::BulkString(word)] if word == b"free" => Ok(Vote::Free),
        [Value::BulkString(word), Value::BulkString(token), Value::Int(millis)] if word == b"held" => {
            let left = u64::try_from(*millis).map(Duration::from_millis);
            Ok(Vote::Held(Holding::new(Token::found(token), left.map_or(Expiry::Never, Expiry::In))))
        }
        other => Err(strange(format!("a script answered {other:?}"))),
    }
}

fn command(question: &Question) -> Cmd {
    let mut eval = cmd("EVAL");
    match question {
        Question::Acquire { claim, ttl } => {
            eval.arg(scripts::ACQUIRE).arg(2).arg(claim.key()).arg(claim.tombstone());
            eval.arg(claim.token().as_bytes()).arg(millis(*ttl));
        }
        Question::Renew { claim, ttl } => {
            eval.arg(scripts::RENEW).arg(2).arg(claim.key()).arg(claim.tombstone());
            eval.arg(claim.token().as_bytes()).arg(millis(*ttl));
        }
        Question::Release { claim } => {
            eval.arg(scripts::RELEASE).arg(1).arg(claim.key()).arg(claim.token().as_bytes());
        }
        Question::Cancel { claim, linger } => {
            eval.arg(scripts::CANCEL).arg(2).arg(claim.key()).arg(claim.tombstone());
            eval.arg(claim.token().as_bytes()).arg(millis(*linger));
        }
        Question::Inspect { key } => {
            eval.arg(scripts::INSPECT).arg(1).arg(&**key);
        }
        // Newer than this kit. The server refuses an EVAL of nothing, and the test says so.
        _ => {}
    }
    eval
}

fn strange(message: String) -> NodeError {
    NodeError::Failed { message: message.into(), lasting: Lasting::UntilMended }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
