//! The signals that `quorlock` receives.

use std::future::poll_fn;
use std::io;
use std::os::fd::{IntoRawFd as _, RawFd};
use std::os::unix::net;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, raise, sigaction, signal,
};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::net::UnixStream;

/// The signals that are always received. A command also gets [those](Signals::receive_all) that are received while it
/// runs.
const PASSED_ON: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    // Comes here while the command is in the background of the terminal, as in a pipeline.
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Those that are never received. Some cannot be, or say that this process has crashed; one tells of a child, and one
/// of a reader that has gone.
const OUR_OWN: [Signal; 11] = [
    Signal::SIGKILL,
    Signal::SIGSTOP,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGSEGV,
    Signal::SIGSYS,
    Signal::SIGCHLD,
    Signal::SIGPIPE,
];

/// A signal that this process has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// One with a name.
    Named(Signal),
    /// The number of one without.
    RealTime(i32),
}

/// What a key of the terminal has ended: to the shell it must look as if its signal had ended this process, because
/// a script goes on after a command that exits with 130.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interruption {
    /// The signal of the key.
    pub(crate) signal: Signal,
    /// Whether the command had the terminal, so that the group of this process, with the script, got no signal.
    pub(crate) of_command_alone: bool,
}

impl Received {
    fn of(number: i32) -> Received {
        Signal::try_from(number).map_or(Received::RealTime(number), Received::Named)
    }
}

/// Receives signals, by a handler of its own: a command under a lock gets sixty, and each handler that Tokio installs costs a
/// copy of the table of all.
pub(crate) struct Signals {
    /// Readable after a signal.
    news: UnixStream,
    /// The signals that are received, one bit each.
    received: u64,
    /// The signals that were ignored when `quorlock` started, one bit each.
    ignored: u64,
}

impl Signals {
    /// Starts receiving.
    ///
    /// A signal that was ignored when `quorlock` started stays ignored, for the command as well: as under
    /// `nohup`, and for background commands of shells.
    pub(crate) fn listen() -> io::Result<Signals> {
        let (news, writer) = net::UnixStream::pair()?;
        for end in [&news, &writer] {
            end.set_nonblocking(true)?;
        }
        // Never closed: the handler may be about to write to it.
        NEWS.store(writer.into_raw_fd(), Ordering::SeqCst);
        let mut signals = Signals { news: UnixStream::from_std(news)?, received: 0, ignored: ignored() };
        PASSED_ON.into_iter().try_for_each(|signal| signals.receive(signal as i32))?;
        Ok(signals)
    }

    /// Receives also those that have their default action while there is no command to forward them to.
    pub(crate) fn receive_all(&mut self) -> io::Result<()> {
        let ours = OUR_OWN.map(|signal| signal as i32);
        (1..32)
            .chain(real_time())
            .filter(|number| !ours.contains(number))
            .try_for_each(|number| self.receive(number))
    }

    fn receive(&mut self, number: i32) -> io::Result<()> {
        if (self.received | self.ignored) & bit(number) == 0 {
            install(number)?;
            self.received |= bit(number);
        }
        Ok(())
    }

    /// Makes `command` ignore SIGCHLD and SIGPIPE if `quorlock` was started with them ignored, since it cannot
    /// ignore these itself. The others are inherited.
    #[expect(unsafe_code, reason = "the standard library resets SIGPIPE for each command")]
    pub(crate) fn keep_ignored(&self, command: &mut Command) {
        let pipe = PIPE_WAS_IGNORED.load(Ordering::Relaxed).then_some(Signal::SIGPIPE);
        let child = (self.ignored & bit(Signal::SIGCHLD as i32) != 0).then_some(Signal::SIGCHLD);
        if pipe.is_none() && child.is_none() {
            return;
        }
        let ignore = move || {
            for number in [pipe, child].into_iter().flatten() {
                // SAFETY: ignoring a signal installs no handler, so nothing can run in a wrong place.
                unsafe { signal(number, SigHandler::SigIgn) }?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe functions may be called, and no memory
        // allocated. `ignore` makes two system calls, and builds errors that own nothing.
        unsafe { command.pre_exec(ignore) };
    }

    /// Waits for the next terminating signal, while there is no command to forward others to. SIGTSTP stops the
    /// process, as without a handler.
    pub(crate) async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next_named().await;
            if ends(signal) {
                return signal;
            }
            if signal == Signal::SIGTSTP {
                stop(signal, false);
            }
        }
    }

    /// Waits for the next signal that has a name.
    pub(crate) async fn next_named(&mut self) -> Signal {
        loop {
            if let Received::Named(signal) = self.next().await {
                return signal;
            }
        }
    }

    /// Waits for the next signal. One that comes again before it was returned is returned once.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(crate) async fn next(&mut self) -> Received {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        let mut read = [0; 64];
        loop {
            if let Some(received) = take() {
                return Poll::Ready(received);
            }
            let Poll::Ready(Ok(())) = self.news.poll_read_ready(context) else { return Poll::Pending };
            // An error means that there is nothing to read after all.
            let _ = self.news.try_read(&mut read);
        }
    }
}

/// The signals that have come and were not returned yet, one bit each.
static PENDING: AtomicU64 = AtomicU64::new(0);
/// The file that the handler writes to.
static NEWS: AtomicI32 = AtomicI32::new(-1);

/// Takes the next signal: first those that are always received, in their order.
fn take() -> Option<Received> {
    let pending = PENDING.load(Ordering::SeqCst);
    let mut numbers = PASSED_ON.into_iter().map(|signal| signal as i32).chain(1..=64);
    let number = numbers.find(|number| pending & bit(*number) != 0)?;
    PENDING.fetch_and(!bit(number), Ordering::SeqCst);
    Some(Received::of(number))
}

/// Installs the handler.
#[expect(unsafe_code, reason = "the crates with safe functions know no real-time signals, or are slow")]
fn install(number: i32) -> io::Result<()> {
    let handler = SigHandler::SigAction(handle);
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_RESTART;
    let action: libc::sigaction = SigAction::new(handler, flags, SigSet::empty()).into();
    // SAFETY: `handle` calls async-signal-safe functions only.
    Errno::result(unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) })?;
    Ok(())
}

/// The handler.
#[expect(unsafe_code, reason = "it gets a pointer, and writes to a file by its number")]
extern "C" fn handle(number: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let errno = Errno::last_raw();
    // SAFETY: the kernel passes it to every handler that is installed with `SA_SIGINFO`.
    if unsafe { is_of_kernel(&*info) } {
        BY_KEY.fetch_or(bit(number), Ordering::SeqCst);
    } else {
        BY_KEY.fetch_and(!bit(number), Ordering::SeqCst);
    }
    if number == Signal::SIGCONT as i32 {
        CONTINUED.store(true, Ordering::SeqCst);
    }
    PENDING.fetch_or(bit(number), Ordering::SeqCst);
    let news: RawFd = NEWS.load(Ordering::SeqCst);
    // SAFETY: it is open, and one byte is read. It may be full: then there is enough to read.
    unsafe { libc::write(news, [0_u8].as_ptr().cast(), 1) };
    Errno::set_raw(errno);
}

/// Whether SIGPIPE was ignored when this process started. The standard library ignores it before `main`.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[expect(unsafe_code, reason = "only code that runs before the standard library can see this")]
#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static AT_START: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: the standard library does the same right after this; no handler is installed.
        let before = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
        PIPE_WAS_IGNORED.store(matches!(before, Ok(SigHandler::SigIgn)), Ordering::Relaxed);
    }
    look
};

/// The signals whose last one came from a key of the terminal, one bit each.
static BY_KEY: AtomicU64 = AtomicU64::new(0);
/// Whether SIGCONT has come since [`stop`] began.
static CONTINUED: AtomicBool = AtomicBool::new(false);

/// Whether the last `signal` came from a key of the terminal, and not from a program.
pub(crate) fn is_by_key(signal: Signal) -> bool {
    BY_KEY.load(Ordering::SeqCst) & bit(signal as i32) != 0
}

#[cfg(target_os = "linux")]
fn is_of_kernel(info: &libc::siginfo_t) -> bool {
    info.si_code == libc::SI_KERNEL
}

/// The number of the sending process is 0 for the kernel.
#[cfg(not(target_os = "linux"))]
#[expect(unsafe_code, reason = "the field is one of a union")]
fn is_of_kernel(info: &libc::siginfo_t) -> bool {
    // SAFETY: the signals of keys and of `kill` have this field.
    unsafe { info.si_pid() == 0 }
}

#[cfg(target_os = "linux")]
fn real_time() -> impl Iterator<Item = i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

#[cfg(not(target_os = "linux"))]
fn real_time() -> impl Iterator<Item = i32> {
    std::iter::empty()
}

/// Stops this process by the default action of `signal`, and with `whole_group` the other processes of its group, such
/// as the script that waits for it: a shell regards a script as stopped only if that is.
///
/// Returns whether this process was continued. It was not even stopped if no shell could continue it: where its group
/// is orphaned, as under `ssh -t` or `script`, the kernel ignores the signal.
pub(crate) fn stop(signal: Signal, whole_group: bool) -> bool {
    CONTINUED.store(false, Ordering::SeqCst);
    let before = act(signal, SigHandler::SigDfl);
    // Pending here before the shell can see the group stopped: a SIGCONT from it then takes the signal back, and none
    // that comes first leaves this process stopped.
    let mut blocked = SigSet::empty();
    blocked.add(signal);
    let mask = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let _ = raise(signal);
    if whole_group {
        let _ = kill(Pid::from_raw(0), signal);
    }
    if let Ok(mask) = mask {
        let _ = mask.thread_set_mask();
    }
    if let Some(before) = before {
        act(signal, before);
    }
    CONTINUED.load(Ordering::SeqCst)
}

/// Ends this process as the key did. Returns if that is impossible, as for the first process of a container.
pub(crate) fn die_of(Interruption { signal, of_command_alone }: Interruption) {
    // SIGQUIT would leave a core.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    act(signal, SigHandler::SigIgn);
    if of_command_alone {
        let _ = kill(Pid::from_raw(0), signal);
    }
    act(signal, SigHandler::SigDfl);
    let _ = raise(signal);
}

/// Sets what `signal` does, and returns what it did before.
#[expect(unsafe_code, reason = "tokio never takes its handlers away")]
fn act(signal: Signal, handler: SigHandler) -> Option<SigHandler> {
    let flags = match handler {
        SigHandler::SigAction(_) => SaFlags::SA_SIGINFO | SaFlags::SA_RESTART,
        SigHandler::SigDfl | SigHandler::SigIgn | SigHandler::Handler(_) => SaFlags::SA_RESTART,
    };
    // SAFETY: the default, none, or the handler that was installed before.
    let before = unsafe { sigaction(signal, &SigAction::new(handler, flags, SigSet::empty())) };
    before.ok().map(|before| before.handler())
}

/// Whether `signal` is a terminating one.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)
}

/// Returns the signals that this process ignores, one bit each.
fn ignored() -> u64 {
    (1..=u64::BITS).filter(|number| is_ignored(*number)).fold(0, |mask, number| mask | 1 << (number - 1))
}

#[expect(unsafe_code, reason = "it must not depend on /proc, and the safe functions change what they read")]
fn is_ignored(number: u32) -> bool {
    let Ok(number) = i32::try_from(number) else { return false };
    let mut action = std::mem::MaybeUninit::<nix::libc::sigaction>::uninit();
    // SAFETY: without a new action it changes nothing, and if it succeeds it has written the present one.
    unsafe {
        nix::libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == nix::libc::SIG_IGN
    }
}

fn bit(number: i32) -> u64 {
    1 << (number - 1)
}
