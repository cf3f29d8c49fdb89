//! Parses node URLs: the program, its arguments, and what it stands for.

use std::fmt;
use std::sync::Arc;

use quorlock::node::{AddressError, percent_decoded};

/// A parsed node URL: `exec:PROGRAM?arg=ARGUMENT&arg=ARGUMENT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExecAddress {
    pub(crate) program: Arc<str>,
    pub(crate) arguments: Arc<[String]>,
    /// Whether it stands for a whole cluster by consensus, in which other programs lock, too.
    pub(crate) is_cluster: bool,
    /// Whether it says when a key has gone.
    pub(crate) hints: bool,
}

const CURE: &str =
    "write `exec:/usr/bin/program?arg=first&arg=second`, with `%2C` for a comma and `%26` for `&`";

impl ExecAddress {
    pub(crate) fn parse(text: &str) -> Result<ExecAddress, AddressError> {
        let wrong = |problem| AddressError::malformed("exec:…", problem, CURE);
        let (_, rest) = text.split_once(':').unwrap_or(("exec", text));
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (program, options) = rest.split_once('?').unwrap_or((rest, ""));
        let decoded = |text| {
            percent_decoded(text).ok_or_else(|| wrong("has a `%` that is not followed by two hex digits"))
        };
        let program = decoded(program)?;
        if program.is_empty() || program.contains('\0') {
            return Err(wrong("has no program"));
        }
        let (mut arguments, mut is_cluster, mut hints) = (Vec::new(), false, false);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("arg", argument)) => arguments.push(decoded(argument)?),
                Some(("cluster", "yes")) => is_cluster = true,
                Some(("hints", "yes")) => hints = true,
                Some(_) | None => {
                    return Err(wrong("has an option other than `arg=…`, `hints=yes` and `cluster=yes`"));
                }
            }
        }
        Ok(ExecAddress { program: program.into(), arguments: arguments.into(), is_cluster, hints })
    }
}

/// A normalized spelling. Arguments are shown, as the system shows those of each process.
impl fmt::Display for ExecAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exec:{}", encoded(&self.program))?;
        let arguments = self.arguments.iter().map(|argument| format!("arg={}", encoded(argument)));
        let hints = self.hints.then(|| "hints=yes".to_owned());
        let cluster = self.is_cluster.then(|| "cluster=yes".to_owned());
        for (at, option) in arguments.chain(hints).chain(cluster).enumerate() {
            write!(f, "{}{option}", if at == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// Encodes what has a meaning in a URL or in a list of URLs.
fn encoded(text: &str) -> String {
    let encode = |c: char| match c {
        '%' | ',' | '&' | '?' | '#' | ' ' => format!("%{:02X}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_program_and_its_arguments_and_is_shown_as_it_is_read() {
        let parsed =
            ExecAddress::parse("exec:/opt/my%20node?arg=a%2Cb&arg=%3F&cluster=yes&hints=yes").unwrap();
        assert_eq!(
            (&*parsed.program, &*parsed.arguments),
            ("/opt/my node", &["a,b".to_owned(), "?".to_owned()][..])
        );
        assert!(parsed.is_cluster && parsed.hints);
        assert_eq!(ExecAddress::parse(&parsed.to_string()).unwrap(), parsed);
        assert_eq!(&*ExecAddress::parse("EXEC://node.py").unwrap().program, "node.py");
        for wrong in ["exec:", "exec:?arg=x", "exec:a?other=1", "exec:a?arg=%4", "exec:a?cluster=no"] {
            assert!(
                ExecAddress::parse(wrong).unwrap_err().to_string().contains("exec:/usr/bin/program"),
                "{wrong}"
            );
        }
    }
}
