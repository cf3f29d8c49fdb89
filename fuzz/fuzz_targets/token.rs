//! Tokens and names: any bytes from a node are displayed without control characters and compared byte by byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quorlock::protocol::{Claim, Resource, is_auxiliary_key};
use quorlock::{FencingToken, Token};

fuzz_target!(|bytes: &[u8]| {
    let token = Token::found(bytes);
    assert_eq!(token.as_bytes(), bytes);
    let shown = format!("{token} {token:?} {}", token.short());
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    assert!(shown.chars().count() < 500, "{shown:?}");
    drop(token.context());

    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let ours = Token::new(7, text);
    assert_eq!(ours.context().as_deref(), Some(text));
    assert!(!ours.to_string().chars().any(char::is_control));
    if let Ok(fence) = text.parse::<FencingToken>() {
        assert_eq!(fence.to_string().parse(), Ok(fence));
    }
    if let Ok(resource) = Resource::parse(text) {
        let claim = Claim::new(resource.as_str().into(), ours);
        for sibling in [claim.tombstone(), claim.want_mark()] {
            assert!(is_auxiliary_key(&sibling) && sibling.contains(text), "{sibling}");
        }
        // All locks of a slot share it.
        assert!(is_auxiliary_key(&claim.fence_counter()), "{}", claim.fence_counter());
        assert!(claim.preferred_node(5) < 5);
    }
});
