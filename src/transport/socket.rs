//! Sockets that can also be read while their runtime is blocked.

use std::cell::Cell;
use std::io::{self, IoSlice, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(unix)]
use std::os::fd::AsFd as Handle;
#[cfg(windows)]
use std::os::windows::io::AsSocket as Handle;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket of Tokio. That knows of data only after its runtime has polled the operating system, which it cannot do while
/// a task blocks its thread. [Past the runtime](go_past_the_runtime) the socket itself is read.
pub(super) struct Socket<S>(pub(super) S);

thread_local! {
    static PAST_THE_RUNTIME: Cell<bool> = const { Cell::new(false) };
}

/// Lets this thread stand in for runtimes that may be blocked, until it ends: it polls the tasks of nodes itself, and reads
/// what has arrived at sockets that a runtime takes for idle.
pub(crate) fn go_past_the_runtime() {
    PAST_THE_RUNTIME.set(true);
}

/// Whether this thread stands in for runtimes.
pub(crate) fn is_past_the_runtime() -> bool {
    PAST_THE_RUNTIME.get()
}

impl<S: AsyncRead + Handle + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.0).poll_read(context, buffer);
        if polled.is_ready() || !is_past_the_runtime() {
            return polled;
        }
        // Tokio's sockets do not block.
        match (&*SockRef::from(&self.0)).read(buffer.initialize_unfilled()) {
            Ok(read) => {
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
            // Tokio wakes the task when there is more, or reports the error.
            Err(_) => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
