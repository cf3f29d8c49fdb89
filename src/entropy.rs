//! Randomness for tokens and for jitter, and the seam that lets a simulation replace it.

use std::fmt;

/// Where random numbers come from.
///
/// Replace it in simulations only: a token that can be guessed can be released by others.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// 128 random bits.
    fn bits(&self) -> u128;

    /// 64 random bits.
    fn half(&self) -> u64 {
        let [_, _, _, _, _, _, _, _, half @ ..] = self.bits().to_le_bytes();
        u64::from_le_bytes(half)
    }
}

/// The thread's cryptographically secure generator, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bits(&self) -> u128 {
        #[expect(clippy::disallowed_methods, reason = "this is the source that everybody else asks")]
        rand::random()
    }
}
