//! The RSA key that a server hands out, checked before any arithmetic with it: a large one keeps a processor busy for
//! minutes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use num_bigint::BigUint;

use crate::scramble::sha1;

/// The sizes of moduli that servers use, in bits: MySQL creates keys of 2048.
const LEAST: usize = 2048;
const MOST: usize = 4096;
/// The longest text of such a key is half of this, in bytes.
const LONGEST: usize = 2048;
/// `rsaEncryption` without parameters.
const RSA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
/// What the padding adds (OAEP with SHA-1).
const PADDING: usize = 42;

/// Random bytes that no one can guess, new for each secret.
pub(crate) type Seed = [u8; 20];

/// Encrypts for the owner of this key, the text of a file as the server has it, as RFC 8017 says (7.1.1).
///
/// # Errors
///
/// Why that is impossible.
pub(crate) fn sealed(secret: &[u8], key: &[u8], seed: Seed) -> Result<Vec<u8>, &'static str> {
    let key =
        Key::read(key).ok_or("it sent a key that cannot be used: RSA with 2048 to 4096 bits is needed")?;
    if secret.len() + PADDING > key.octets() {
        return Err("the password is too long for the key that it sent");
    }
    let sealed =
        BigUint::from_bytes_be(&padded(secret, key.octets(), seed)).modpow(&key.exponent, &key.modulus);
    let sealed = sealed.to_bytes_be();
    Ok([vec![0; key.octets().saturating_sub(sealed.len())], sealed].concat())
}

/// Pads a secret to this length with OAEP.
fn padded(secret: &[u8], octets: usize, mut seed: Seed) -> Vec<u8> {
    let zeros = vec![0; octets.saturating_sub(secret.len() + PADDING)];
    let mut block = [&sha1(&[]), &*zeros, &[1], secret].concat();
    mask(&mut block, &seed);
    mask(&mut seed, &block);
    [&[0], &seed[..], &block].concat()
}

/// XORs with the mask that MGF1 derives from `source`.
fn mask(target: &mut [u8], source: &[u8]) {
    for (count, part) in (0_u32..).zip(target.chunks_mut(20)) {
        part.iter_mut().zip(sha1(&[source, &count.to_be_bytes()])).for_each(|(byte, mask)| *byte ^= mask);
    }
}

struct Key {
    modulus: BigUint,
    exponent: BigUint,
}

impl Key {
    /// The length of what it encrypts.
    fn octets(&self) -> usize {
        usize::try_from(self.modulus.bits().div_ceil(8)).unwrap_or(usize::MAX)
    }

    /// Returns `None` if it is no key of those sizes with a small exponent.
    fn read(key: &[u8]) -> Option<Key> {
        let (modulus, exponent) = numbers(key)?;
        Some(Key { modulus: BigUint::from_bytes_be(&modulus), exponent: BigUint::from_bytes_be(&exponent) })
    }
}

fn numbers(key: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let text = str::from_utf8(key).ok().filter(|text| text.len() <= LONGEST)?.trim_ascii();
    let body = text.strip_prefix("-----BEGIN PUBLIC KEY-----")?.strip_suffix("-----END PUBLIC KEY-----")?;
    let body: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let der = STANDARD.decode(body).ok()?;
    let [algorithm, bits] = fields([0x30, 3], only(0x30, &der)?)?;
    let key = bits.strip_prefix(&[0]).filter(|_| algorithm == RSA)?;
    let [modulus, exponent] = fields([2, 2], only(0x30, key)?)?;
    let (modulus, exponent) = (odd(modulus)?, odd(exponent)?);
    let bits = modulus.len() * 8 - usize::try_from(modulus.first()?.leading_zeros()).ok()?;
    let is_small = exponent.len() <= 4 && exponent != [1];
    ((LEAST..=MOST).contains(&bits) && is_small).then(|| (modulus.to_vec(), exponent.to_vec()))
}

/// The bytes of a positive odd number, of which the first is not zero.
fn odd(number: &[u8]) -> Option<&[u8]> {
    let is_odd = number.first()? & 0x80 == 0 && number.last()? & 1 == 1;
    let number = number.strip_prefix(&[0]).unwrap_or(number);
    (is_odd && *number.first()? > 0).then_some(number)
}

/// The contents of two elements with these tags, and nothing behind them.
fn fields(tags: [u8; 2], der: &[u8]) -> Option<[&[u8]; 2]> {
    let (first, rest) = element(tags[0], der)?;
    Some([first, only(tags[1], rest)?])
}

fn only(tag: u8, der: &[u8]) -> Option<&[u8]> {
    element(tag, der).and_then(|(content, rest)| rest.is_empty().then_some(content))
}

/// Splits an element with this tag off: its content, and what follows.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match der {
        [found, length @ 0..=0x7f, rest @ ..] if *found == tag => (usize::from(*length), rest),
        [found, 0x81, length, rest @ ..] if *found == tag => (usize::from(*length), rest),
        [found, 0x82, high, low, rest @ ..] if *found == tag => {
            (usize::from(u16::from_be_bytes([*high, *low])), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a key, as OpenSSL writes it.
    fn key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
        let element = |tag: u8, content: &[u8]| {
            let length = u16::try_from(content.len()).unwrap().to_be_bytes();
            [&[tag, 0x82], &length[..], content].concat()
        };
        let numbers = [element(2, &[&[0], modulus].concat()), element(2, exponent)].concat();
        let bits = element(3, &[&[0], &*element(0x30, &numbers)].concat());
        let der = element(0x30, &[element(0x30, RSA), bits].concat());
        let lines: Vec<String> = STANDARD
            .encode(der)
            .as_bytes()
            .chunks(64)
            .map(|line| String::from_utf8_lossy(line).into())
            .collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n")).into()
    }

    const USUAL: &[u8] = &[1, 0, 1];
    const SEED: Seed = *b"twenty random bytes.";

    /// The same bytes for another client.
    struct Fixed;

    impl mysql_common::crypto::rsa::Rng for Fixed {
        type Error = std::io::Error;

        fn fill(&mut self, bytes: &mut [u8]) -> std::io::Result<()> {
            bytes.copy_from_slice(&SEED);
            Ok(())
        }
    }

    #[test]
    fn a_secret_is_sealed_as_by_another_client() {
        use mysql_common::crypto::rsa::{Pkcs1OaepPadding, PublicKey};

        for (length, exponent) in [(256, USUAL), (256, &[3]), (384, USUAL), (512, USUAL)] {
            let modulus: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap() | 0x81).collect();
            let text = key(&modulus, exponent);
            for secret in [&b""[..], b"s", b"secret\0", &[b'p'; 214]] {
                let known = PublicKey::from_pem(&text).encrypt_block(secret, Pkcs1OaepPadding::new(Fixed));
                assert_eq!(sealed(secret, &text, SEED), Ok(known), "{length} bytes");
            }
        }
    }

    #[test]
    fn a_key_is_used_only_if_it_is_one_of_the_usual_sizes() {
        for (length, usable) in
            [(128, false), (255, false), (256, true), (512, true), (513, false), (2048, false)]
        {
            let found = Key::read(&key(&vec![0xff; length], USUAL)).map(|key| key.octets());
            assert_eq!(found, usable.then_some(length), "{length} bytes");
        }
        let modulus = [0xff; 256];
        for (exponent, usable) in [
            (&[3][..], true),
            (&[1], false),
            (&[], false),
            (&[2], false),
            (&[0xff; 4], false),
            (&[0x7f; 4], true),
            (&[0, 0xff, 0xff, 0xff, 0xff], true),
            (&[1, 0, 0, 0, 1], false),
            (&[0x7f; 256], false),
        ] {
            assert_eq!(Key::read(&key(&modulus, exponent)).is_some(), usable, "{exponent:?}");
        }
        assert!(Key::read(&key(&[0xfe; 256], USUAL)).is_none(), "an even number");
        let small = key(&[&[0; 256][..], &[1]].concat(), USUAL);
        assert!(Key::read(&small).is_none(), "a small number, written long");
        assert_eq!(sealed(&[b'p'; 214], &key(&modulus, USUAL), SEED).map(|sealed| sealed.len()), Ok(256));
        assert!(sealed(&[b'p'; 215], &key(&modulus, USUAL), SEED).is_err());
    }

    #[test]
    fn what_is_no_key_is_refused_and_panics_nowhere() {
        let good = key(&[0xff; 256], USUAL);
        assert!(sealed(b"secret", &good, SEED).is_ok());
        for length in 0..good.len() - 1 {
            assert!(sealed(b"secret", &good[..length], SEED).is_err(), "{length} bytes");
        }
        for place in 0..good.len() {
            for byte in [0, b'A', b'/', b'=', b'-', b'\n', 0xff] {
                let mut changed = good.clone();
                changed[place] = byte;
                // Some bits may change and leave a key.
                drop(sealed(b"secret", &changed, SEED));
            }
        }
        for text in [
            "",
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            "-----BEGIN RSA PUBLIC KEY-----",
        ] {
            assert!(sealed(b"secret", text.as_bytes(), SEED).is_err(), "{text}");
        }
    }
}
