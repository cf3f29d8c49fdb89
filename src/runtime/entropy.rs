//! Randomness for tokens and for jitter, and the seam that lets a simulation replace it.

use std::fmt;

use rand::TryRng as _;
use rand::rngs::SysRng;

/// Where random numbers come from.
///
/// Replace it in simulations only: a token that can be guessed can be released by others.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// 128 random bits.
    fn next_u128(&self) -> u128;

    /// 64 random bits.
    fn next_u64(&self) -> u64 {
        let [_, _, _, _, _, _, _, _, half @ ..] = self.next_u128().to_le_bytes();
        u64::from_le_bytes(half)
    }
}

/// The operating system's generator, asked each time.
///
/// No generator of this process comes between: after `fork`, and in a copy of a virtual machine, two would go
/// on with the same numbers, and one client's clean-up would give the other's lock back (rule I-4). A supply
/// that is kept would have to notice both, and only the system notices the second. It costs an acquisition
/// half a microsecond: less than a hundredth of its round trip, and a twentieth of the processor time of a
/// client that acquires tens of thousands of locks a second.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u128(&self) -> u128 {
        let mut bytes = [0; 16];
        match SysRng.try_fill_bytes(&mut bytes) {
            Ok(()) => u128::from_le_bytes(bytes),
            #[expect(clippy::disallowed_methods, reason = "this is the source that everybody else asks")]
            // The system has no more to give. What the thread's generator was seeded with must do.
            Err(_) => rand::random(),
        }
    }
}
