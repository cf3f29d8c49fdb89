//! The keywords of Python for what the library calls otherwise.

/// The library's words for what a user of Python sets with a keyword.
const KEYWORDS: [(&str, &str); 10] = [
    ("`Tls::authority`, --tls-ca or SSL_CERT_FILE", "tls_ca or SSL_CERT_FILE"),
    ("`Tls::identity`, or --tls-cert and --tls-key", "tls_cert and tls_key"),
    ("`Tls::identity`, --tls-cert and --tls-key", "tls_cert and tls_key"),
    ("`Tls::server_name` or --tls-server-name", "tls_server_name"),
    ("with --tls-ca", "with tls_ca"),
    ("--tls-cert and --tls-key", "tls_cert and tls_key"),
    ("with --nodes URL,URL,URL,", "as connect(\"redis://a,redis://b,redis://c\"),"),
    ("given with --config,", "given with config=,"),
    ("pass --config ", "pass config="),
    (" (`Builder::max_ttl`, --max-ttl, `max-ttl` in the file)", " (`max_ttl` of connect)"),
];

/// The text with the keywords of Python.
pub(crate) fn for_python(text: String) -> String {
    let replace = |text: String, (word, keyword): &(&str, &str)| {
        if text.contains(word) { text.replace(word, keyword) } else { text }
    };
    KEYWORDS.iter().fold(text, replace)
}
