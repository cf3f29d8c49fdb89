//! One connection to one member: calls with one answer each, and the stream of watches. Nothing is sent twice.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use quorlock::node::places::{Member, Members};
use quorlock::node::{NodeError, Reason, Seams};
use quorlock::runtime::within;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::error::{Failure, no_etcd};
use crate::wire::{WatchRequest, WatchResponse};
use login::Login;

mod login;

/// The largest answer that is read, unless more was asked for. Decoded it may take forty times as much: two bytes are an empty
/// field.
pub(crate) const LARGEST: usize = 1 << 20;

/// What a login has returned; nothing where there was none.
pub(crate) type AuthToken = Option<MetadataValue<Ascii>>;

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    grpc: Grpc<Http2>,
    login: Arc<Login>,
    limit: Duration,
    seams: Seams,
}

/// How a request is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum As {
    /// With the largest answer.
    Call(usize),
    /// The only one of a stream, of whose answers the first counts.
    Stream,
}

/// The service by which `tonic` sends requests over the connection.
#[derive(Clone)]
struct Http2(SendRequest<Body>);

impl Service<Request<Body>> for Http2 {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Response<Incoming>, hyper::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

impl Client {
    /// Connects to a member, and logs in where there is a user. Each later call takes at most `limit`.
    ///
    /// # Errors
    ///
    /// Why that failed, with its cure.
    pub(crate) async fn connect(
        members: &Members,
        member: &Member,
        seams: &Seams,
        limit: Duration,
    ) -> Result<Client, NodeError> {
        let stream = members.dial(member, seams, Some("h2")).await?;
        let shaken = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| no_etcd(error, member))?;
        // Ends with the connection, or with the last clone of the sender.
        tokio::spawn(async move { drop(connection.await) });
        let origin = Uri::builder().scheme("http").authority(member.to_string()).path_and_query("/").build();
        let origin =
            origin.map_err(|error| NodeError::Unreachable { reason: Reason::new(error.to_string()) })?;
        let grpc = Grpc::with_origin(Http2(sender), origin).max_decoding_message_size(LARGEST);
        let login = Arc::new(Login::new(members, member));
        let client = Client { grpc, login, limit, seams: seams.clone() };
        client.log_in().await?;
        Ok(client)
    }

    /// Sends a request, and waits for the answer. Where the member does not know the login any more, it has done nothing:
    /// then the request is sent again after a new login, once.
    ///
    /// # Errors
    ///
    /// The error of the server or of the connection, or that no answer came in time.
    pub(crate) async fn call<A, B>(&self, path: &'static str, request: A) -> Result<B, Failure>
    where
        A: Message + Clone + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        self.call_for(path, request, LARGEST).await
    }

    /// As [`call`](Client::call), for an answer of another size at most.
    pub(crate) async fn call_for<A, B>(
        &self,
        path: &'static str,
        request: A,
        largest: usize,
    ) -> Result<B, Failure>
    where
        A: Message + Clone + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        self.logged_in(As::Call(largest), path, request).await
    }

    /// Asks for one answer on a stream of requests, as for keep-alives. As [`call`](Client::call).
    pub(crate) async fn first<A, B>(&self, path: &'static str, request: A) -> Result<B, Failure>
    where
        A: Message + Clone + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        self.logged_in(As::Stream, path, request).await
    }

    async fn logged_in<A, B>(&self, how: As, path: &'static str, request: A) -> Result<B, Failure>
    where
        A: Message + Clone + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        let (token, again) = (self.token(), self.has_user().then(|| request.clone()));
        match (self.send(how, path, request, &token).await, again) {
            (Err(failure), Some(request)) if failure.is_of_login() => {
                let token = self.log_in_again(&token).await?;
                self.send(how, path, request, &token).await
            }
            // Where there are users, a request without a login lacks a user's name.
            (Err(Failure::Refused(Code::InvalidArgument, reason)), None) => {
                Err(Failure::Refused(Code::Unauthenticated, reason))
            }
            (answered, _) => answered,
        }
    }

    async fn send<A, B>(
        &self,
        how: As,
        path: &'static str,
        request: A,
        token: &AuthToken,
    ) -> Result<B, Failure>
    where
        A: Message + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        match how {
            As::Call(largest) => self.unary(path, request, token, largest).await,
            As::Stream => self.first_of(path, request, token).await,
        }
    }

    async fn unary<A, B>(
        &self,
        path: &'static str,
        request: A,
        token: &AuthToken,
        largest: usize,
    ) -> Result<B, Failure>
    where
        A: Message + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc.clone().max_decoding_message_size(largest);
        let request = with_metadata(request, token);
        let answered = async move {
            grpc.ready().await.map_err(not_connected)?;
            let codec = ProstCodec::<A, B>::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
            answer.map(tonic::Response::into_inner).map_err(Failure::from)
        };
        let answered = within(&**self.seams.clock(), self.limit, answered).await;
        answered.unwrap_or(Err(Failure::Silent(self.limit)))
    }

    async fn first_of<A, B>(&self, path: &'static str, request: A, token: &AuthToken) -> Result<B, Failure>
    where
        A: Message + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc.clone();
        let request = with_metadata(tokio_stream::once(request), token);
        let answered = async move {
            grpc.ready().await.map_err(not_connected)?;
            let codec = ProstCodec::<A, B>::default();
            let mut answers =
                grpc.streaming(request, PathAndQuery::from_static(path), codec).await?.into_inner();
            answers.message().await?.ok_or(Failure::Lost("the stream ended without an answer".into()))
        };
        within(&**self.seams.clock(), self.limit, answered).await.unwrap_or(Err(Failure::Silent(self.limit)))
    }

    /// Opens a stream of watches, with this login. The first of them must have been asked for: etcd answers nothing before.
    pub(crate) async fn watch(
        &self,
        requests: UnboundedReceiver<WatchRequest>,
        token: &AuthToken,
    ) -> Result<Streaming<WatchResponse>, Failure> {
        let mut grpc = self.grpc.clone();
        let request = with_metadata(UnboundedReceiverStream::new(requests), token);
        let opened = async move {
            grpc.ready().await.map_err(not_connected)?;
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            Ok(grpc.streaming(request, path, codec).await?.into_inner())
        };
        within(&**self.seams.clock(), self.limit, opened).await.unwrap_or(Err(Failure::Silent(self.limit)))
    }
}

fn not_connected(error: hyper::Error) -> Failure {
    Failure::Unsent(Reason::new("not connected").because(error))
}

fn with_metadata<T>(message: T, token: &AuthToken) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    // A member without a leader says so, and does not wait for one.
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token.clone());
    }
    request
}
