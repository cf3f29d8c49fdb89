use tokio::io::{AsyncRead, AsyncWrite};

/// A bidirectional byte stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}
