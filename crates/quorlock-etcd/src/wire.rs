//! The messages of etcd's API that this crate uses, as they are numbered in its `rpc.proto`, `kv.proto` and `auth.proto`.

use prost::{Message, Oneof};

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
#[expect(clippy::struct_field_names, reason = "as etcd calls them")]
pub(crate) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int32, tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(int32, tag = "6")]
    pub(crate) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    #[prost(int64, tag = "12")]
    pub(crate) min_create_revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PutResponse {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DeleteResponse {
    #[prost(int64, tag = "2")]
    pub(crate) deleted: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "With", tags = "5, 6, 7")]
    pub(crate) with: Option<With>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum With {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3, 4")]
    pub(crate) op: Option<Op>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Op {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
    #[prost(message, tag = "4")]
    Txn(Txn),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Done", tags = "1, 2, 3, 4")]
    pub(crate) done: Option<Done>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Done {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Grant {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LeaseId {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The answer to a grant and to a keep-alive.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LeaseLife {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Revoked {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TimeToLive {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    #[prost(bool, tag = "2")]
    pub(crate) keys: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TimeToLiveResponse {
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "4")]
    pub(crate) granted_ttl: i64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(crate) keys: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchOp", tags = "1, 2")]
    pub(crate) op: Option<WatchOp>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum WatchOp {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "7")]
    pub(crate) watch_id: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchCancel {
    #[prost(int64, tag = "1")]
    pub(crate) watch_id: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchResponse {
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Event {
    /// 0 for a put, 1 for a deletion.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Authenticated {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Status {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(int64, tag = "3")]
    pub(crate) db_size: i64,
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    /// How many entries of the log the member knows to be committed.
    #[prost(uint64, tag = "5")]
    pub(crate) raft_index: u64,
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
    #[prost(bool, tag = "10")]
    pub(crate) is_learner: bool,
    #[prost(int64, tag = "12")]
    pub(crate) quota: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MembersRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Members {
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Member {
    #[prost(bool, tag = "5")]
    pub(crate) is_learner: bool,
}

/// The end of a range of all keys that begin with `prefix`, which ends in another byte than 255.
pub(crate) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

impl Range {
    pub(crate) fn of(key: impl Into<Vec<u8>>) -> Range {
        Range { key: key.into(), ..Range::default() }
    }

    /// All keys from `start` until `end`, those first that were created first.
    pub(crate) fn by_creation(start: Vec<u8>, end: Vec<u8>, limit: i64) -> Range {
        Range { key: start, range_end: end, limit, sort_order: 1, sort_target: 2, ..Range::default() }
    }
}

impl Compare {
    fn of(key: impl Into<Vec<u8>>, result: i32, target: i32, with: With) -> Compare {
        Compare { result, target, key: key.into(), with: Some(with), range_end: Vec::new() }
    }

    /// The key does not exist.
    pub(crate) fn is_missing(key: impl Into<Vec<u8>>) -> Compare {
        Compare::of(key, 0, 1, With::CreateRevision(0))
    }

    pub(crate) fn value_is(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Compare {
        Compare::of(key, 0, 3, With::Value(value.into()))
    }

    pub(crate) fn value_below(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Compare {
        Compare::of(key, 2, 3, With::Value(value.into()))
    }

    /// The key was last changed at this revision; 0 for a key that does not exist.
    pub(crate) fn changed_at(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
        Compare::of(key, 0, 2, With::ModRevision(revision))
    }

    /// No key of the range was changed after this revision.
    pub(crate) fn unchanged_since(start: Vec<u8>, end: Vec<u8>, revision: i64) -> Compare {
        let with = With::ModRevision(revision.saturating_add(1));
        Compare { range_end: end, ..Compare::of(start, 2, 2, with) }
    }

    /// No key of the range exists.
    pub(crate) fn none_in(start: Vec<u8>, end: Vec<u8>) -> Compare {
        Compare { range_end: end, ..Compare::is_missing(start) }
    }

    /// No key of the range was created before this revision.
    pub(crate) fn none_before(start: Vec<u8>, end: Vec<u8>, revision: i64) -> Compare {
        let with = With::CreateRevision(revision.saturating_sub(1));
        Compare { range_end: end, ..Compare::of(start, 1, 1, with) }
    }
}

impl From<Op> for RequestOp {
    fn from(op: Op) -> RequestOp {
        RequestOp { op: Some(op) }
    }
}

impl RequestOp {
    pub(crate) fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> RequestOp {
        Op::Put(Put { key: key.into(), value: value.into(), lease }).into()
    }

    pub(crate) fn delete(key: impl Into<Vec<u8>>) -> RequestOp {
        Op::Delete(Delete { key: key.into() }).into()
    }

    pub(crate) fn range(range: Range) -> RequestOp {
        Op::Range(range).into()
    }

    pub(crate) fn txn(txn: Txn) -> RequestOp {
        Op::Txn(txn).into()
    }
}

impl TxnResponse {
    /// Returns what was found by the range at this place.
    pub(crate) fn range(&self, at: usize) -> &[KeyValue] {
        match self.responses.get(at).and_then(|response| response.done.as_ref()) {
            Some(Done::Range(found)) => &found.kvs,
            Some(Done::Put(_) | Done::Delete(_) | Done::Txn(_)) | None => &[],
        }
    }

    /// Returns the result of the transaction at this place.
    pub(crate) fn nested(&self, at: usize) -> Option<&TxnResponse> {
        match self.responses.get(at)?.done.as_ref()? {
            Done::Txn(nested) => Some(nested),
            Done::Range(_) | Done::Put(_) | Done::Delete(_) => None,
        }
    }

    pub(crate) fn revision(&self) -> i64 {
        self.header.map_or(0, |header| header.revision)
    }
}
