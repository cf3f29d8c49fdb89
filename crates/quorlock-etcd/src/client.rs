//! One connection to one member: calls with one answer each, and the stream of watches. Nothing is sent twice.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use quorlock::node::{NodeError, Reason, Seams};
use quorlock::redis::Endpoint;
use quorlock::runtime::within;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::address::{EtcdAddress, Member};
use crate::error::{Failure, no_etcd, refused_login};
use crate::wire::{Authenticate, Authenticated, WatchRequest, WatchResponse};

/// The largest answer that is read: the list of the keys on a lease, of which there may be hundreds of thousands.
const LARGEST: usize = 64 << 20;

const LOGIN: &str = "/etcdserverpb.Auth/Authenticate";

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    grpc: Grpc<Http2>,
    /// After a login.
    token: Option<MetadataValue<Ascii>>,
    limit: Duration,
    seams: Seams,
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
        address: &EtcdAddress,
        member: &Member,
        seams: &Seams,
        limit: Duration,
    ) -> Result<Client, NodeError> {
        let endpoint = Endpoint::Tcp { host: member.host.clone(), port: member.port };
        let stream = seams.dial().dial(&endpoint.into()).await.map_err(NodeError::undialled)?;
        #[cfg(feature = "tls")]
        let stream = if address.is_encrypted() {
            let tls = seams.tls().clone().speaking("h2");
            tls.wrap(&member.host, stream).await.map_err(NodeError::undialled)?
        } else {
            stream
        };
        let shaken = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| no_etcd(error, member))?;
        // Ends with the connection, or with the last clone of the sender.
        tokio::spawn(async move { drop(connection.await) });
        let origin = Uri::builder().scheme("http").authority(member.to_string()).path_and_query("/").build();
        let origin =
            origin.map_err(|error| NodeError::Unreachable { reason: Reason::new(error.to_string()) })?;
        let grpc = Grpc::with_origin(Http2(sender), origin).max_decoding_message_size(LARGEST);
        let mut client = Client { grpc, token: None, limit, seams: seams.clone() };
        if let Some((name, password)) = address.login(seams) {
            let asked = Authenticate { name: name.to_owned(), password: password.to_owned() };
            let answer = client.call::<_, Authenticated>(LOGIN, asked).await;
            match answer {
                Ok(Authenticated { token }) => {
                    let token = token.parse().map_err(|_| NodeError::UnexpectedReply {
                        reason: "the token of a login is not text".into(),
                    })?;
                    client.token = Some(token);
                }
                // It has no users, and lets everyone in.
                Err(failure) if failure.code() == Some(Code::FailedPrecondition) => {}
                Err(failure) => return Err(refused_login(failure, name, member)),
            }
        }
        Ok(client)
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    ///
    /// The error of the server or of the connection, or that no answer came in time.
    pub(crate) async fn call<A, B>(&self, path: &'static str, request: A) -> Result<B, Failure>
    where
        A: Message + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc.clone();
        let (request, is_login) = (self.with_metadata(request), path == LOGIN);
        let answered = async move {
            grpc.ready()
                .await
                .map_err(|error| Failure::Unsent(Reason::new("not connected").because(error)))?;
            let codec = ProstCodec::<A, B>::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
            answer.map(tonic::Response::into_inner).map_err(Failure::from)
        };
        let answered = within(&**self.seams.clock(), self.limit, answered).await;
        let answered = answered.unwrap_or(Err(Failure::Silent(self.limit)));
        // Where there are users, a request without a login lacks a user's name.
        answered.map_err(|failure| match failure {
            Failure::Refused(Code::InvalidArgument, reason) if self.token.is_none() && !is_login => {
                Failure::Refused(Code::Unauthenticated, reason)
            }
            failure @ (Failure::Unsent(_)
            | Failure::Broken(_)
            | Failure::Lost(_)
            | Failure::Silent(_)
            | Failure::Refused(..)) => failure,
        })
    }

    /// Asks for one answer on a stream of requests, as for keep-alives.
    pub(crate) async fn first<A, B>(&self, path: &'static str, request: A) -> Result<B, Failure>
    where
        A: Message + Send + Sync + 'static,
        B: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc.clone();
        let request = self.with_metadata(tokio_stream::once(request));
        let answered = async move {
            grpc.ready()
                .await
                .map_err(|error| Failure::Unsent(Reason::new("not connected").because(error)))?;
            let codec = ProstCodec::<A, B>::default();
            let mut answers =
                grpc.streaming(request, PathAndQuery::from_static(path), codec).await?.into_inner();
            answers.message().await?.ok_or(Failure::Lost("the stream ended without an answer".into()))
        };
        within(&**self.seams.clock(), self.limit, answered).await.unwrap_or(Err(Failure::Silent(self.limit)))
    }

    /// Opens the stream of watches. The first of them must have been asked for: etcd answers nothing before.
    pub(crate) async fn watch(
        &self,
        requests: UnboundedReceiver<WatchRequest>,
    ) -> Result<Streaming<WatchResponse>, Failure> {
        let mut grpc = self.grpc.clone();
        let request = self.with_metadata(UnboundedReceiverStream::new(requests));
        let opened = async move {
            grpc.ready()
                .await
                .map_err(|error| Failure::Unsent(Reason::new("not connected").because(error)))?;
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            Ok(grpc.streaming(request, path, codec).await?.into_inner())
        };
        within(&**self.seams.clock(), self.limit, opened).await.unwrap_or(Err(Failure::Silent(self.limit)))
    }

    fn with_metadata<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        // A member without a leader says so, and does not wait for one.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}
