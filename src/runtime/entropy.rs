//! Randomness for tokens and jitter, and the trait by which simulations replace it.

use std::fmt;

use rand::TryRng as _;
use rand::rngs::SysRng;

/// A source of random numbers.
///
/// Replace it in simulations only: another client could release a token that it can guess.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// Returns 128 random bits.
    fn next_u128(&self) -> u128;

    /// Returns 64 random bits.
    fn next_u64(&self) -> u64 {
        let [_, _, _, _, _, _, _, _, half @ ..] = self.next_u128().to_le_bytes();
        u64::from_le_bytes(half)
    }
}

/// The operating system's generator, called each time.
///
/// A generator inside the process would be duplicated by `fork` and in a copy of a virtual machine:
/// both copies would produce the same tokens, and one client's clean-up would release the other's
/// lock (rule I-4). Only the operating system notices the second case. It takes half a microsecond
/// per acquisition: less than a hundredth of the round trip, and a twentieth of the processor time
/// of a client that acquires tens of thousands of locks a second.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u128(&self) -> u128 {
        let mut bytes = [0; 16];
        match SysRng.try_fill_bytes(&mut bytes) {
            Ok(()) => u128::from_le_bytes(bytes),
            #[expect(clippy::disallowed_methods, reason = "the one place that reads system randomness")]
            // The system's generator failed. Fall back to the thread's, which is already seeded.
            Err(_) => rand::random(),
        }
    }
}
