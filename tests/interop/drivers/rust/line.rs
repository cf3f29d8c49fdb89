//! Shared by both drivers in Rust: README.md describes the protocol.

use std::collections::HashMap;
use std::io::BufRead as _;

pub type Answer<T> = Result<T, String>;

/// A library, as a driver calls it.
pub trait Library {
    type Lock;

    fn acquire(&mut self, resource: &[u8], ttl_ms: u32) -> Answer<Self::Lock>;
    fn token(&self, lock: &Self::Lock) -> Vec<u8>;
    fn extend(&mut self, lock: &Self::Lock, ttl_ms: u32) -> Answer<()>;
    fn release(&mut self, lock: &Self::Lock);
}

pub fn serve<L: Library>(version: &str, connect: impl FnOnce(Vec<String>) -> L) {
    let mut library = connect(std::env::args().skip(1).collect());
    let mut held = HashMap::new();
    println!("ready {version}, Rust");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match obey(&mut library, &mut held, &words) {
            Ok(answer) => println!("{answer}"),
            Err(reason) => println!("refused {}", reason.replace('\n', " ")),
        }
    }
}

fn obey<L: Library>(library: &mut L, held: &mut HashMap<String, L::Lock>, words: &[&str]) -> Answer<String> {
    let millis = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    let missing = || "no such lock".to_owned();
    match *words {
        ["acquire", resource, ttl] => {
            let lock = library.acquire(resource.as_bytes(), millis(ttl)?)?;
            let token: String = library.token(&lock).iter().map(|byte| format!("{byte:02x}")).collect();
            held.insert(resource.to_owned(), lock);
            Ok(format!("acquired {token}"))
        }
        ["extend", resource, ttl] => {
            library.extend(held.get(resource).ok_or_else(missing)?, millis(ttl)?)?;
            Ok("extended".to_owned())
        }
        ["release", resource] => {
            library.release(&held.remove(resource).ok_or_else(missing)?);
            Ok("released".to_owned())
        }
        _ => Err("unknown order: expected acquire, extend or release".to_owned()),
    }
}
