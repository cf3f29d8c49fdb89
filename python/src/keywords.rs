//! The keywords of Python for what the library calls otherwise.

/// The library's words for what a user of Python sets with a keyword.
const KEYWORDS: [(&str, &str); 21] = [
    ("`Tls::authority`, --tls-ca or SSL_CERT_FILE", "tls_ca or SSL_CERT_FILE"),
    ("`Tls::identity`, or --tls-cert and --tls-key", "tls_cert and tls_key"),
    ("`Tls::identity`, --tls-cert and --tls-key", "tls_cert and tls_key"),
    ("`Tls::server_name` or --tls-server-name", "tls_server_name"),
    ("with --tls-ca, or `Tls::authority`", "with tls_ca"),
    ("with --tls-ca", "with tls_ca"),
    ("--tls-cert and --tls-key", "tls_cert and tls_key"),
    ("with --nodes URL,URL,URL,", "as connect(\"redis://a,redis://b,redis://c\"),"),
    ("given with --config,", "given with config=,"),
    ("pass --config ", "pass config="),
    (
        "by `Builder::username` and `Builder::password`, --username and --password-file or QUORLOCK_PASSWORD",
        "by username and password, or password_file, of connect()",
    ),
    (
        "the program's password (`Builder::password`, --password-file or QUORLOCK_PASSWORD)",
        "password or password_file of connect()",
    ),
    (" (`Builder::nodes`, --nodes, `nodes` in the file)", ""),
    (" (`Builder::key_prefix`, --key-prefix, `key-prefix` in the file)", " (`key_prefix` of connect)"),
    (" (--key-prefix)", " (`key_prefix` of connect)"),
    ("run doctor with --key-prefix locks:", "connect with key_prefix=\"locks:\""),
    (" (--node-timeout, `Builder::node_timeout`)", " (`node_timeout` of connect)"),
    ("QUORLOCK_RESTART_GUARD=off in its environment (`RestartGuard::Off`)", "restart_guard=False"),
    ("--at-least and --once-per (in a program `retain` and `every`)", "`retain` and `once`"),
    ("by `--fencing off` or `Lock::unfenced`", "by fencing=False"),
    ("`Builder::max_ttl`, --max-ttl, `max-ttl` in the file", "`max_ttl` of connect"),
];

/// The text with the keywords of Python.
pub(crate) fn for_python(text: String) -> String {
    let replace = |text: String, (word, keyword): &(&str, &str)| {
        if text.contains(word) { text.replace(word, keyword) } else { text }
    };
    KEYWORDS.iter().fold(text, replace)
}
