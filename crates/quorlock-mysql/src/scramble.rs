//! The proofs of a password by which MariaDB and MySQL know a client, which do not disclose it.
//!
//! By hand, because the crate that has them brings twenty others into every program, for regular expressions,
//! compression and binary logs. The hashes and the curve are other crates'; tests compare each proof with that crate's.

use curve25519_dalek::scalar::clamp_integer;
use curve25519_dalek::{EdwardsPoint, Scalar};
use sha1_smol::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

/// `mysql_native_password`: SHA1(password) XOR SHA1(nonce, SHA1(SHA1(password))). Nothing for an empty password.
pub(crate) fn native(nonce: &[u8], password: &[u8]) -> Vec<u8> {
    let once = sha1(&[password]);
    proof(password, &once, &sha1(&[nonce, &sha1(&[&once])]))
}

/// The short path of `caching_sha2_password`: SHA256(password) XOR SHA256(SHA256(SHA256(password)), nonce).
/// Nothing for an empty password.
pub(crate) fn caching_sha2(nonce: &[u8], password: &[u8]) -> Vec<u8> {
    let once = Sha256::digest(password);
    let mask = Sha256::new().chain_update(Sha256::digest(once)).chain_update(nonce).finalize();
    proof(password, &once, &mask)
}

/// `client_ed25519`: the nonce, signed as RFC 8032 says (5.1.6), except that the secret is the password itself, of any
/// length.
pub(crate) fn ed25519(nonce: &[u8], password: &[u8]) -> Vec<u8> {
    let (secret, prefix) = halves(&wide(&[password]));
    let secret = Scalar::from_bytes_mod_order(clamp_integer(secret));
    let public = EdwardsPoint::mul_base(&secret).compress();
    let once = Scalar::from_bytes_mod_order_wide(&wide(&[&prefix, nonce]));
    let point = EdwardsPoint::mul_base(&once).compress();
    let challenge = Scalar::from_bytes_mod_order_wide(&wide(&[point.as_bytes(), public.as_bytes(), nonce]));
    [*point.as_bytes(), (once + challenge * secret).to_bytes()].concat()
}

/// SHA-1 of the parts one after the other.
pub(crate) fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update(part);
    }
    hash.digest().bytes()
}

fn wide(parts: &[&[u8]]) -> [u8; 64] {
    let mut hash = Sha512::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn halves(wide: &[u8; 64]) -> ([u8; 32], [u8; 32]) {
    let half = |from: usize| std::array::from_fn(|at| wide.get(from + at).copied().unwrap_or_default());
    (half(0), half(32))
}

fn proof(password: &[u8], hash: &[u8], mask: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    hash.iter().zip(mask).map(|(one, other)| one ^ other).collect()
}

#[cfg(test)]
mod tests {
    use mysql_common::scramble::{create_response_for_ed25519, scramble_native, scramble_sha256};

    use super::*;

    #[test]
    fn each_proof_is_that_of_another_client() {
        for length in [0, 1, 8, 31, 32, 33, 64, 200] {
            let password: Vec<u8> = (0..length).map(|at: u8| at.wrapping_mul(37) ^ 0x5a).collect();
            for nonce in [[0; 32], [0xff; 32], std::array::from_fn(|at| u8::try_from(at * 7).unwrap())] {
                let short = &nonce[..20];
                let known = scramble_native(short, &password).map_or_else(Vec::new, Vec::from);
                assert_eq!(native(short, &password), known, "native, {length} bytes");
                let known = scramble_sha256(short, &password).map_or_else(Vec::new, Vec::from);
                assert_eq!(caching_sha2(short, &password), known, "caching, {length} bytes");
                let known = create_response_for_ed25519(&password, &nonce);
                assert_eq!(ed25519(&nonce, &password), known, "ed25519, {length} bytes");
            }
        }
    }
}
