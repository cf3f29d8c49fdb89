//! Which kinds of node there are, and what is made of a list of their addresses.

use std::sync::Arc;

use super::{NodeAddress, NodeKind};
use crate::address::{AddressError, LIST};

const UNQUOTE: &str = "leave the quotation marks out: a file of variables, as Docker reads it, has none";

/// The schemes of the kinds that are crates of their own, and how a program adds them.
const CRATES: [(&[&str], &str); 6] = [
    (
        &["postgres", "postgresql"],
        "add `.kind(PostgresKind::new())` of the crate quorlock-postgres, or `.kinds(quorlock_kinds::all())`",
    ),
    (
        &["mysql", "mariadb"],
        "add `.kind(MysqlKind::new())` of the crate quorlock-mysql, or `.kinds(quorlock_kinds::all())`",
    ),
    (
        &["sqlite"],
        "add `.kind(SqliteKind::new())` of the crate quorlock-sqlite, or `.kinds(quorlock_kinds::all())`",
    ),
    (
        &["etcd", "etcds"],
        "add `.kind(EtcdKind::new())` of the crate quorlock-etcd, or `.kinds(quorlock_kinds::all())`",
    ),
    (
        &["zookeeper", "zookeepers"],
        "add `.kind(ZooKeeperKind::new())` of the crate quorlock-zookeeper, or `.kinds(quorlock_kinds::all())`",
    ),
    (
        &["exec"],
        "add `.kind(ExecKind::new())` of the crate quorlock-exec, or `.kinds(quorlock_kinds::all())`",
    ),
];

/// What stands before `://`, or before a `:` that no port is behind: with one it is a host.
fn scheme_of(url: &str) -> Option<&str> {
    if let Some((scheme, _)) = url.split_once("://") {
        return Some(scheme);
    }
    let (scheme, rest) = url.split_once(':')?;
    let is_port = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    (!is_port).then_some(scheme)
}

/// The kinds of node that URLs can name: Redis and Valkey, and those that the program adds.
///
/// A URL is of the kind that has its scheme, before `://` or before `:` alone, as in `sqlite:/var/lib/locks.db`; one
/// without a scheme, such as `host:port`, is that of a Redis server. [`Builder::nodes`](crate::Builder::nodes) takes addresses of all kinds, mixed as one
/// likes.
#[derive(Clone, Debug)]
#[must_use = "give them to a `Builder`"]
pub struct Kinds {
    /// Redis is the first.
    all: Vec<Arc<dyn NodeKind>>,
}

impl Kinds {
    /// One kind, which an address without a scheme is of.
    pub(crate) fn of_one(kind: impl NodeKind) -> Kinds {
        Kinds { all: vec![Arc::new(kind)] }
    }

    /// These and one more.
    pub fn with(mut self, kind: impl NodeKind) -> Kinds {
        self.all.push(Arc::new(kind));
        self
    }

    /// The addresses of a list with commas between them, as the command line and the environment have
    /// it. Where one has commas of its own, its kind tells where it ends. Blanks around an address and empty
    /// places are left out; whether the addresses can be understood is not looked at.
    ///
    /// # Errors
    ///
    /// Where blanks stand between addresses, or a comma within a password: its halves must not be taken
    /// for hosts, which messages show and name servers are asked for. The error shows nothing of the list.
    ///
    /// # Examples
    ///
    /// ```
    /// let list = "redis://10.0.0.1,10.1.0.1, redis+sentinel://s1,s2,s3/orders";
    /// let urls = quorlock::node::Kinds::default().split(list)?;
    /// assert_eq!(urls, ["redis://10.0.0.1", "10.1.0.1", "redis+sentinel://s1,s2,s3/orders"]);
    /// # Ok::<(), quorlock::node::AddressError>(())
    /// ```
    pub fn split(&self, list: &str) -> Result<Vec<String>, AddressError> {
        let mut urls: Vec<String> = Vec::new();
        for piece in list.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
            if piece.split_whitespace().skip(1).any(|word| word.contains("://")) {
                return Err(AddressError::Blanks);
            }
            match urls.last_mut().filter(|_| !self.begins_a_url(piece)) {
                Some(url) if self.of(url).is_some_and(|(_, kind)| kind.goes_on_after(url)) => {
                    url.push(',');
                    url.push_str(piece);
                }
                Some(url) if piece.contains('@') || url.contains("pass=") || url.contains("password=") => {
                    return Err(AddressError::CutAtComma);
                }
                Some(_) | None => urls.push(piece.to_owned()),
            }
        }
        Ok(urls)
    }

    /// The address, and which of the kinds it is of.
    pub(crate) fn parse(&self, url: &str) -> Result<(usize, Box<dyn NodeAddress>), AddressError> {
        let url = url.trim();
        if url.starts_with(['"', '\'']) {
            return Err(AddressError::malformed("…", "begins with a quotation mark", UNQUOTE));
        }
        if self.split(url).is_ok_and(|urls| urls.iter().skip(1).any(|url| self.begins_a_url(url))) {
            return Err(AddressError::malformed("…", LIST.0, LIST.1));
        }
        if let Some(scheme) = scheme_of(url)
            && self.with_scheme(scheme).is_none()
            && let Some((_, cure)) = CRATES.iter().find(|(schemes, _)| schemes.contains(&scheme))
        {
            let problem = "is of a kind that this program has not added";
            return Err(AddressError::malformed(format!("{scheme}:"), problem, cure));
        }
        let (index, kind) = self.of(url).ok_or_else(|| AddressError::scheme(self.schemes()))?;
        Ok((index, kind.parse(url)?))
    }

    /// A scheme that two of the kinds claim.
    pub(crate) fn ambiguous_scheme(&self) -> Option<&str> {
        let mut known: Vec<&str> = Vec::new();
        self.schemes().find(|scheme| {
            let is_known = known.contains(scheme);
            known.push(scheme);
            is_known
        })
    }

    fn schemes(&self) -> impl Iterator<Item = &str> {
        self.all.iter().flat_map(|kind| kind.schemes().iter().copied())
    }

    fn of(&self, url: &str) -> Option<(usize, &dyn NodeKind)> {
        let url = url.trim();
        match url.split_once("://") {
            Some((scheme, _)) => self.with_scheme(scheme),
            None => self.named_by(url).or_else(|| self.kinds().next()),
        }
    }

    fn kinds(&self) -> impl Iterator<Item = (usize, &dyn NodeKind)> {
        self.all.iter().map(|kind| &**kind).enumerate()
    }

    fn with_scheme(&self, scheme: &str) -> Option<(usize, &dyn NodeKind)> {
        self.kinds().find(|(_, kind)| kind.schemes().iter().any(|known| known.eq_ignore_ascii_case(scheme)))
    }

    /// The kind whose scheme stands before a `:` without `//`.
    fn named_by(&self, url: &str) -> Option<(usize, &dyn NodeKind)> {
        self.with_scheme(scheme_of(url)?)
    }

    fn begins_a_url(&self, piece: &str) -> bool {
        piece.contains("://") || self.named_by(piece).is_some()
    }
}
