//! The transactions of a lock, written by hand over the same client library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::{Message, Oneof};
use tokio::sync::mpsc::unbounded_channel;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
struct Range {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "With", tags = "5, 7")]
    with: Option<With>,
    #[prost(bytes = "vec", tag = "64")]
    range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Oneof)]
enum With {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
struct OfOp {
    #[prost(oneof = "Op", tags = "1, 2, 3, 4")]
    op: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Op {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Range),
    #[prost(message, tag = "4")]
    Txn(Txn),
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<OfOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<OfOp>,
}

#[derive(Clone, PartialEq, Message)]
struct Done {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Watch {
    #[prost(message, optional, tag = "1")]
    create: Option<Range>,
}

#[derive(Clone, PartialEq, Message)]
struct Watched {
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(int32, tag = "1")]
    kind: i32,
}

#[derive(Clone)]
struct Http2(SendRequest<Body>);

impl tower_service::Service<Request<Body>> for Http2 {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Response<Incoming>, hyper::Error>>;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// A connection with a lease.
#[derive(Clone)]
pub(crate) struct Hand {
    grpc: Grpc<Http2>,
    lease: i64,
    made: Arc<AtomicU64>,
}

impl Hand {
    pub(crate) async fn connect(endpoint: &str) -> Hand {
        let stream = tokio::net::TcpStream::connect(endpoint).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        let grpc = Grpc::with_origin(Http2(sender), format!("http://{endpoint}/").parse().unwrap());
        let mut hand = Hand { grpc, lease: 0, made: Arc::default() };
        let granted: Granted = hand.call("/etcdserverpb.Lease/LeaseGrant", Grant { ttl: 300 }).await;
        hand.lease = granted.id;
        hand
    }

    async fn call<A, B>(&self, path: &'static str, request: A) -> B
    where
        A: Message + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.unwrap();
        let (request, path) = (tonic::Request::new(request), PathAndQuery::from_static(path));
        grpc.unary(request, path, ProstCodec::<A, B>::default()).await.unwrap().into_inner()
    }

    async fn txn(&self, txn: Txn) -> bool {
        self.call::<_, Done>("/etcdserverpb.KV/Txn", txn).await.succeeded
    }

    fn key(&self, name: &str) -> Vec<u8> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        format!("{name}/{:x}{number:016x}", self.lease).into_bytes()
    }

    /// Acquires with a counter, and releases: the same work as the library's.
    pub(crate) async fn cycle(&self, name: &str) {
        let key = self.key(name);
        let number = (self.made.load(Ordering::Relaxed)).to_be_bytes().to_vec();
        let counter = format!("hand/fence/{name}").into_bytes();
        let put = |key: &[u8], value: &[u8], lease| {
            let put = Put { key: key.to_vec(), value: value.to_vec(), lease };
            OfOp { op: Some(Op::Put(put)) }
        };
        let puts = vec![put(&key, b"token", self.lease), put(&counter, &number, 0)];
        let create = |key: Vec<u8>, range_end| Compare {
            result: 0,
            target: 1,
            key,
            with: Some(With::Create(0)),
            range_end,
        };
        let missing =
            Txn { compare: vec![create(counter.clone(), vec![])], success: puts.clone(), failure: vec![] };
        let below = Compare {
            result: 2,
            target: 3,
            key: counter,
            with: Some(With::Value(number)),
            range_end: vec![],
        };
        let nested =
            Txn { compare: vec![below], success: puts, failure: vec![OfOp { op: Some(Op::Txn(missing)) }] };
        let free = create(format!("{name}/0").into_bytes(), format!("{name}/g").into_bytes());
        let tomb = create([b"hand/tomb/".as_slice(), &key].concat(), vec![]);
        let success = vec![OfOp { op: Some(Op::Txn(nested)) }];
        assert!(self.txn(Txn { compare: vec![free, tomb], success, failure: vec![] }).await);
        self.delete(&key).await;
    }

    /// Puts a key at the end of a queue.
    pub(crate) async fn enter(&self, name: &str) -> Vec<u8> {
        let key = self.key(name);
        let put = Put { key: key.clone(), value: b"token".to_vec(), lease: self.lease };
        let success = vec![OfOp { op: Some(Op::Put(put)) }];
        self.txn(Txn { compare: vec![], success, failure: vec![] }).await;
        key
    }

    /// Makes the place the holder's.
    pub(crate) async fn take(&self, key: &[u8]) {
        let with = Some(With::Value(b"token".to_vec()));
        let own = Compare { result: 0, target: 3, key: key.to_vec(), with, range_end: vec![] };
        let put = Put { key: key.to_vec(), value: b"token".to_vec(), lease: self.lease };
        let success = vec![OfOp { op: Some(Op::Put(put)) }];
        assert!(self.txn(Txn { compare: vec![own], success, failure: vec![] }).await);
    }

    pub(crate) async fn delete(&self, key: &[u8]) {
        let with = Some(With::Value(b"token".to_vec()));
        let own = Compare { result: 0, target: 3, key: key.to_vec(), with, range_end: vec![] };
        let name = key.iter().rposition(|byte| *byte == b'/').map(|at| &key[..at]).unwrap();
        let range = Range { key: [name, b"/0"].concat(), range_end: [name, b"/g"].concat() };
        let delete = Op::Delete(Range { key: key.to_vec(), range_end: vec![] });
        let success = [delete, Op::Range(range)].map(|op| OfOp { op: Some(op) }).into();
        assert!(self.txn(Txn { compare: vec![own], success, failure: vec![] }).await);
    }

    /// Tells when it watches, and returns when the key was deleted.
    pub(crate) async fn wait_for_deletion(&self, key: &[u8], watches: tokio::sync::oneshot::Sender<()>) {
        let (sender, requests) = unbounded_channel();
        let create = Some(Range { key: key.to_vec(), range_end: vec![] });
        sender.send(Watch { create }).unwrap();
        let mut grpc = self.grpc.clone();
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let request = tonic::Request::new(UnboundedReceiverStream::new(requests));
        let codec = ProstCodec::<Watch, Watched>::default();
        let mut stream = grpc.streaming(request, path, codec).await.unwrap().into_inner();
        // The first message says that it is created.
        stream.message().await.unwrap();
        watches.send(()).unwrap();
        while let Some(message) = stream.message().await.unwrap() {
            if message.events.iter().any(|event| event.kind == 1) {
                return;
            }
        }
    }
}
