//! Parses addresses of nodes: the displayed form must parse to the same server, and hide the password.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quorlock::redis::Address;

fuzz_target!(|text: &str| {
    match Address::parse(text) {
        Ok(address) => {
            let shown = address.to_string();
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
            let again = Address::parse(&shown).unwrap_or_else(|error| panic!("{shown:?}: {error}"));
            assert!(again.same_server(&address) && again.endpoint() == address.endpoint(), "{shown:?}");
            assert_eq!(again.to_string(), shown);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    // A password that does not occur by chance.
    let text = format!("redis://:{text}qq7zz9{text}@host");
    match Address::parse(&text) {
        Ok(address) => assert!(!format!("{address} {address:?}").contains("qq7zz9")),
        Err(error) => assert!(!format!("{error} {error:?}").contains("qq7zz9")),
    }
});
