//! What the library says with options of the command and calls of Rust, Python says with its keywords.

use quorlock::doctor::Check;

#[path = "../src/keywords.rs"]
mod keywords;

#[test]
fn no_cure_names_an_option_or_a_call_of_rust() {
    for check in Check::ALL {
        let cure = keywords::for_python(check.cure().to_owned()).replace("`redis-cli --cluster fix`", "");
        let foreign = ["--", "Builder::", "Tls::", "RestartGuard::", "QUORLOCK_"];
        assert!(!foreign.iter().any(|word| cure.contains(word)), "{check}: {cure}");
    }
}
